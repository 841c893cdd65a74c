"""Steps and workflows that ran out of time: counted by flow, and said in the log with all it takes to find them.

Only commits that took a timer out of the queue are looked at, so results and starts pay nothing for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from holdfast.core.decision import Event

if TYPE_CHECKING:
    from holdfast.runtime.plan import Plan

MOST_FLOWS: Final = 1000  # labels of a metric are kept for ever: beyond these, flows are counted together
OTHERS: Final = "(others)"
_CODES: Final = frozenset({"STEP_TIMEOUT", "STEP_DEADLINE", "TASK_EXPIRED"})

Kind = Literal["step", "workflow"]
log = logging.getLogger("holdfast.timeouts")


class Missed(NamedTuple):
    kind: Kind
    step: str | None


class Timeouts:
    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}

    def committed(self, plan: Plan) -> None:
        for id in {queued.instance for queued in plan.locked.signals if queued.kind == "timer"}:
            entry = plan.entries.get(id)
            for decision in () if entry is None else entry.decisions:
                instance = decision.instance
                for kind, step in _missed(decision.events):
                    self._count(instance.flow, kind)
                    where = {"flow": instance.flow, "instance": str(UUID(bytes=id)), "step": step}
                    place = "" if step is None else f" at {step}"
                    log.warning(
                        "The %s timed out%s: %s version %d, instance %s of %s, is %s now",
                        kind, place, instance.flow, instance.flow_version, where["instance"], instance.org,
                        instance.status, extra=where,
                    )  # fmt: skip

    def _count(self, flow: str, kind: Kind) -> None:
        key = flow, kind
        if key not in self.counts and len(self.counts) >= 2 * MOST_FLOWS:
            key = OTHERS, kind
        self.counts[key] = self.counts.get(key, 0) + 1


def _missed(events: list[Event]) -> Iterator[Missed]:
    """At most one of a decision: a step that takes the workflow with it is told as the step."""
    at: str | None = None
    for event in events:
        if event.type == "timer_fired":
            at = event.node
        elif event.type == "instance_expired":
            yield Missed("step" if _detail(event).get("reason") in _CODES else "workflow", event.node or at)
            return
        elif event.type == "step_failed" and _detail(event).get("code") in _CODES:
            yield Missed("step", event.node)
            return


def _detail(event: Event) -> dict[str, Any]:
    return {} if event.detail is None else msgspec.json.decode(event.detail)
