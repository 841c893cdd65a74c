"""Rows of a rollback that begins in the plain way: one statement for what would be nine.

A step fails for good while nothing else of its instance is out, the history is read, every compensation gets its row
and the first one runs where the step ran. Anything unusual (a handler that is still out, a timer, another path, no
compensation at all) goes the long way, which writes exactly the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.compiler.graph import Behaviour
from holdfast.core.decision import Closed, Decision, Dispatch, Opened
from holdfast.core.ids import COMPENSATE
from holdfast.core.signals import SYSTEM
from holdfast.core.state import Instance, encode_state
from holdfast.core.turn import NOTHING_CHOSEN
from holdfast.store.months import Month
from holdfast.store.statements import SQL, Query

_FAILED: Final = ["step_failed", "rollback_started"]
_PLANNED: Final = ["rollback_planned", "compensation_started"]
_WIDTHS: Final = (27, 5, 16)  # columns of an instance, of a step that moves, of a compensation


class Rollbacks:
    """The rollbacks that begin in one batch."""

    def __init__(self) -> None:
        self.begun: list[tuple[Any, ...]] = []
        self.moved: list[tuple[Any, ...]] = []
        self.planned: list[tuple[Any, ...]] = []

    def add(self, before: Instance, failed: Decision, plan: Decision) -> None:
        after, closed, dispatch = plan.instance, failed.closed[0], plan.dispatches[0]
        id, bucket, org = before.id, before.id[15], before.org
        (told_failed, told_start), (told_plan, told_next) = failed.events, plan.events
        status = closed.status
        for move in plan.moved:
            if move.id == closed.id:
                status = move.status
            else:
                self.moved.append((id, bucket, move.at, move.id, move.status))
        self.begun.append(
            (id, bucket, org, after.version, encode_state(after.state), after.reason,
             failed.error, dispatch.path, failed.released[0].fence, dispatch.fence, dispatch.step, dispatch.queue,
             dispatch.timeout, closed.id, closed.at, status, closed.outcome, closed.closing, told_failed.node,
             told_failed.token, told_failed.detail, told_start.detail, told_plan.detail, told_plan.ordinal,
             told_next.node, told_next.token, told_next.detail)
        )  # fmt: skip
        for s in plan.opened:
            self.planned.append(
                (id, bucket, org, before.entity_version, s.id, s.node, s.path, s.hop, s.token, s.key, s.version,
                 s.ordinal, s.input, s.detail, s.calls, s.fence)
            )  # fmt: skip

    def query(self, now: int, worker: bytes | None, month: Month | None) -> Query:
        groups = zip((self.begun, self.moved, self.planned), _WIDTHS, strict=True)
        columns = [column for rows, width in groups for column in _columns(rows, width)]
        statement = SQL.begin_rollbacks
        if month is not None and month.has_all([*(row[14] for row in self.begun), *(row[2] for row in self.moved)]):
            statement = statement.in_month(month.name)
        return statement.arrays(columns, now, worker, len(self.begun), len(self.moved))


def is_plain_rollback(before: Instance, decisions: list[Decision], leases: Callable[[Dispatch], bool]) -> bool:
    if len(decisions) != 2:
        return False
    failed, plan = decisions
    was_plain = failed.plain == "fail" and plan.plain == "plan"
    return (was_plain or _is_like_plain(before, failed, plan)) and leases(plan.dispatches[0])


def _is_like_plain(before: Instance, failed: Decision, plan: Decision) -> bool:
    """Decided at length, but nothing came of it that would not fit: forks that were over, say."""
    return (
        len(failed.closed) == len(failed.released) == len(plan.dispatches) == 1
        and bool(plan.opened)
        and not (failed.opened or failed.dispatches or plan.closed or plan.released or plan.retried)
        and [event.type for event in failed.events] == _FAILED
        and [event.type for event in plan.events] == _PLANNED
        and failed.events[0].actor == SYSTEM.id
        and plan.instance.definition == before.definition
        and (plan.instance.data is before.data or plan.instance.data == before.data)
        and _is_plain_end(failed.closed[0])
        and all(map(_is_plain_compensation, plan.opened))
        and plan.dispatches[0].path == failed.released[0].path
        and plan.dispatches[0].input is not None
        and not (_has_more(failed) or _has_more(plan) or failed.moved)
    )


def _is_plain_end(closed: Closed) -> bool:
    return closed.chosen == NOTHING_CHOSEN and closed.output is None and closed.ordinal == 0


def _is_plain_compensation(opened: Opened) -> bool:
    return opened.kind == COMPENSATE and opened.behaviour == Behaviour.WORK and not opened.run


def _has_more(d: Decision) -> bool:
    """Anything beside steps, events, work and the instance itself."""
    return bool(
        d.retried or d.superseded or d.timers or d.timers_ended or d.effects or d.key_waits or d.key_waits_ended
        or d.children or d.outgoing or d.tasks or d.stops or d.halts or d.letters or d.letters_resolved
    )  # fmt: skip


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width
