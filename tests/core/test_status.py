"""The status tables: complete, forward only, and drawn in the docs."""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from holdfast.core.model.status import (
    INSTANCE_TRANSITIONS,
    OPEN_STEP,
    PHASE_TRANSITIONS,
    STEP_TRANSITIONS,
    TERMINAL,
    InstanceStatus,
    Phase,
    StepStatus,
    undo_of,
)

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("status", "outcome", "undo"),
    [
        ("running", None, None), ("completed", "completed", None), ("failed", "error", None),
        ("failed", "timeout", None), ("compensation", "error", "running"), ("compensation", "completed", "running"),
        ("rolled_back", "error", "done"), ("rolled_back", "paid", "done"),
        ("failed", "completed", "failed"), ("failed", "paid", "failed"),
        ("skipped", "cancelled", None), ("paused", "paused", None),
    ],
)  # fmt: skip
def test_what_became_of_taking_a_step_back(status: str, outcome: str | None, undo: str | None) -> None:
    assert undo_of(status, outcome) == undo


@pytest.mark.parametrize(
    ("statuses", "table"),
    [(InstanceStatus, INSTANCE_TRANSITIONS), (StepStatus, STEP_TRANSITIONS), (Phase, PHASE_TRANSITIONS)],
)
def test_every_status_has_its_row(statuses: type[StrEnum], table: Mapping[StrEnum, frozenset[StrEnum]]) -> None:
    assert list(table) == list(statuses)
    assert all(status not in following for status, following in table.items())


def test_terminal_statuses_are_final_and_the_others_are_not() -> None:
    assert {status for status, following in INSTANCE_TRANSITIONS.items() if not following} == TERMINAL


def test_a_closed_step_never_opens_again() -> None:
    for status, following in STEP_TRANSITIONS.items():
        assert status in OPEN_STEP or not following & OPEN_STEP


def test_nothing_ends_completed_after_a_rollback_began() -> None:
    assert InstanceStatus.COMPLETED not in INSTANCE_TRANSITIONS[InstanceStatus.ROLLING_BACK]


def test_the_diagrams_are_drawn_from_the_tables() -> None:
    drawn = runpy.run_path(str(DOCS / "make_status.py"))["page"]()
    assert (DOCS / "status.md").read_text(encoding="utf-8") == drawn, "run: python docs/make_status.py"
