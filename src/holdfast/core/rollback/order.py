"""The steps that a rollback undoes, and their order."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.model.control_rows import FinishedLate, read_control
from holdfast.core.model.ids import FORWARD
from holdfast.core.model.program import Program
from holdfast.core.model.renames import MIGRATE, names_today
from holdfast.core.model.signals import PastStep
from holdfast.core.model.state import ROOT
from holdfast.core.model.status import StepStatus

DONE: Final = frozenset({StepStatus.COMPLETED, StepStatus.CONFIRMED, StepStatus.FAILED})
_PASSED: Final = FORWARD, StepStatus.COMPLETED  # a save point that counts


class Past(msgspec.Struct, frozen=True):
    steps: list[PastStep]
    save_point: str | None


def executed(program: Program, steps: list[PastStep], *, to_root: bool) -> Past:
    """The steps done since the nearest save point, evidence of late successes included."""
    steps = _in_todays_names(steps)
    point = None if to_root or not program.save_points else _last_save_point(program, steps)
    late = dict(_evidence(step) for step in steps if step.node == FinishedLate.node)
    done: list[PastStep] = []
    for step in steps:
        if step.kind != FORWARD or (point is not None and _moment(step) <= _moment(point)):
            continue
        if step.status in DONE:
            done.append(step)
        elif step.id in late:
            done.append(msgspec.structs.replace(step, output=late[step.id]))
    return Past(done, None if point is None else point.node)


def backwards(steps: list[PastStep], first: bytes) -> list[PastStep]:
    """The step that failed, then all others from the last to the first, branch by branch."""
    order = sorted(steps, key=_rank)
    failed = next((step for step in order if step.id == first), None)
    if failed is not None:
        order.remove(failed)
        order.insert(0, failed)
    return order


def _rank(step: PastStep) -> tuple[int, ...]:
    """The sort key of a step: later hops first, and the inside of a split before the split itself, branch after branch.

    `0/3.1` is the branch 1 of the split at hop 3.
    """
    rank: list[int] = []
    if step.path != ROOT:
        for scope in step.path.split("/")[1:]:
            hop, _, index = scope.partition(".")
            rank += (-int(hop), 0, int(index))
    return (*rank, -step.hop, 1, -step.version, -step.ordinal)


def _in_todays_names(steps: list[PastStep]) -> list[PastStep]:
    migrations = [(_moment(step), step.detail) for step in steps if step.node == MIGRATE]
    if not migrations:
        return steps
    today = names_today(migrations)
    return [msgspec.structs.replace(step, node=today(step.node, _moment(step))) for step in steps]


def _last_save_point(program: Program, steps: list[PastStep]) -> PastStep | None:
    passed = (s for s in steps if s.node in program.save_points and (s.kind, s.status) == _PASSED)
    return max(passed, key=_moment, default=None)


def _evidence(step: PastStep) -> tuple[bytes, bytes | None]:
    """The step whose handler finished late, and its output; no step if the handler failed."""
    late = read_control(FinishedLate, step.detail)
    return (bytes.fromhex(late.step), step.input) if late.done else (b"", None)


def _moment(step: PastStep) -> tuple[int, int]:
    return step.version, step.ordinal
