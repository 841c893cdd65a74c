"""Steps and workflows that ran out of time: counted by flow, and said in the log with all it takes to find them.

Only commits that took a timer out of the queue are looked at, so results and starts pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from uuid import UUID

import msgspec

from holdfast.core.model.decision import Event
from holdfast.logs import logger
from holdfast.runtime.telemetry.flow_counts import FlowCounts

if TYPE_CHECKING:
    from holdfast.runtime.commit.batch import Plan

_CODES: Final = frozenset({"STEP_TIMEOUT", "STEP_DEADLINE", "TASK_EXPIRED"})

Kind = Literal["step", "workflow"]
log = logger("holdfast.timeouts")


class Missed(NamedTuple):
    kind: Kind
    step: str | None


class Timeouts:
    def __init__(self, home: str) -> None:
        self.counts = FlowCounts(home)  # by flow and kind

    def committed(self, plan: Plan) -> None:
        for id in {queued.instance for queued in plan.locked.signals if queued.kind == "timer"}:
            entry = plan.entries.get(id)
            for decision in () if entry is None else entry.decisions:
                instance = decision.instance
                for kind, step in _missed(decision.events):
                    self.counts.add(instance.org, instance.flow, kind)
                    where = {"flow": instance.flow, "instance": str(UUID(bytes=id)), "step": step}
                    place = "" if step is None else f" at {step}"
                    log.warning(
                        "The %s timed out%s: %s version %d, instance %s of %s, is %s now",
                        kind, place, instance.flow, instance.flow_version, where["instance"], instance.org,
                        instance.status, extra=where,
                    )  # fmt: skip


def _missed(events: list[Event]) -> Iterator[Missed]:
    """Find the timeouts of a decision, at most one: a step that takes the workflow with it counts as the step's."""
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
