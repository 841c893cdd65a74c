"""Draws docs/status.md from the status tables of the core. Run it after changing them: python docs/make_status.py"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from holdfast.core.model.status import (
    INSTANCE_TRANSITIONS,
    OPEN_STEP,
    PHASE_TRANSITIONS,
    STEP_TRANSITIONS,
    InstanceStatus,
    Phase,
)

PAGE = Path(__file__).with_name("status.md")

HEAD = """\
# Status

Drawn from the tables in `holdfast/core/model/status.py` by `docs/make_status.py`. The database holds the same tables by
trigger; a move that is not drawn here is refused there.
"""

SECTIONS = (
    (
        "Instance",
        "`suspended` and `dlq` carry a reason and continue with a resume. The four ends are final.",
        INSTANCE_TRANSITIONS,
        {InstanceStatus.PENDING},
    ),
    (
        "Step",
        "One row per visit of a node. Retries stay `running`; a step that is run again is a new row and the old one is "
        "`superseded`.",
        STEP_TRANSITIONS,
        OPEN_STEP,
    ),
    (
        "Token",
        "What a live token does where it stands; leaving the node is not a phase.",
        PHASE_TRANSITIONS,
        {Phase.WORKING, Phase.RESTING, Phase.HELD, Phase.DEAD},
    ),
)


def diagram(transitions: Mapping[StrEnum, frozenset[StrEnum]], first: frozenset[StrEnum] | set[StrEnum]) -> str:
    """A Mermaid state diagram; the order is that of the table, so the same table gives the same text."""
    order = list(transitions)
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {state}" for state in order if state in first]
    for state, following in transitions.items():
        lines += [f"    {state} --> {target}" for target in order if target in following]
        if not following:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)


def page() -> str:
    parts = [HEAD]
    for title, sentence, transitions, first in SECTIONS:
        parts.append(f"## {title}\n\n{sentence}\n\n```mermaid\n{diagram(transitions, first)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
