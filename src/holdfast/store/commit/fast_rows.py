"""Rows of plain decisions: one statement writes all tables of a step.

Nearly every commit of a busy engine consists of them. The SQL holds the values that are the same for all (statuses,
event types, ordinals), so a step costs the wire two dozen values instead of ninety and the server one statement instead
of six. A rollback that begins in the plain way is one statement instead of nine. All other decisions are written by the
general rows (`rows.py`); a plain decision written by them leaves exactly the same in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from holdfast.core.kernel.builder import NOTHING_CHOSEN
from holdfast.core.model.decision import Closed, Decision, Dispatch, Opened
from holdfast.core.model.ids import COMPENSATE
from holdfast.core.model.signals import SYSTEM
from holdfast.core.model.state import Instance, encode_state
from holdfast.graph.model import Behaviour
from holdfast.store.commit.rows import NewInstance, outputs_beside
from holdfast.store.pg.partitions import Month
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.queue.work import ripe_at

_FAILED: Final = ["step_failed", "rollback_started"]
_PLANNED: Final = ["rollback_planned", "compensation_started"]
_others: Final = outputs_beside("instance", "error", "opened", "closed", "events", "dispatches", "released", "moved")
_WIDTHS: Final = (27, 5, 16)  # columns of an instance, of a step that moves, of a compensation


def begun(decision: Decision, new: NewInstance, point: int) -> tuple[Any, ...]:
    """Build the row of `begin_instances`: a start."""
    after, opened, dispatch = decision.instance, decision.opened[0], decision.dispatches[0]
    id, input = after.id, new.input
    return (
        id, id[15], after.org, after.definition, after.flow, after.flow_version, encode_state(after.state),
        None if after.data is input else after.data, input, new.business_key, new.attributes, new.created_by,
        after.trace, decision.events[0].actor, opened.node, opened.id, opened.key, dispatch.queue, dispatch.timeout,
        ripe_at(dispatch.at, dispatch.priority, point),
    )  # fmt: skip


def advanced(decision: Decision, before: Instance) -> tuple[Any, ...]:
    """Build the row of `advance_steps`: a step that ends and opens the next."""
    after, opened, closed, dispatch = decision.instance, decision.opened[0], decision.closed[0], decision.dispatches[0]
    id, left, output = after.id, decision.events[0], closed.output
    return (
        id, id[15], after.org, after.version, encode_state(after.state),
        None if after.data is before.data else after.data, opened.path, opened.hop, opened.token, closed.id, closed.at,
        left.node, left.token, closed.chosen, output, opened.node, opened.id, opened.key,
        None if opened.input is output else opened.input, opened.fence, dispatch.queue, dispatch.timeout,
        after.entity_version,
    )  # fmt: skip


def finished(decision: Decision) -> tuple[Any, ...]:
    """Build the row of `finish_instances`: the last step ends, and the instance with it."""
    after, opened, closed = decision.instance, decision.opened[0], decision.closed[0]
    id, left, output = after.id, decision.events[0], closed.output
    return (
        id, id[15], after.org, after.version, None if after.data is output else after.data, opened.hop, opened.token,
        closed.id, closed.at, left.node, left.token, closed.chosen, output, opened.node, decision.released[0].fence,
        after.entity_version, opened.id, opened.key,
    )  # fmt: skip


def undone(decision: Decision) -> tuple[Any, ...]:
    """Build the row of `undo_steps`: a compensation that ends and begins the next."""
    after, closed, dispatch = decision.instance, decision.closed[0], decision.dispatches[0]
    id, (done, begun), (of, following) = after.id, decision.events, decision.moved
    return (
        id, id[15], after.org, after.version, encode_state(after.state), dispatch.path, dispatch.fence, closed.at,
        closed.id, done.node, done.token, closed.output, of.id, of.at, dispatch.step, begun.node, begun.token,
        following.id, following.at, dispatch.queue, dispatch.timeout,
    )  # fmt: skip


def rolled_back(decision: Decision) -> tuple[Any, ...]:
    """Build the row of `end_rollbacks`: the last compensation ends, and the rollback with it."""
    after, closed, released, [of] = decision.instance, decision.closed[0], decision.released[0], decision.moved
    id, (done, told, ended) = after.id, decision.events
    return (
        id, id[15], after.org, after.version, after.status, after.reason, released.path, released.fence, closed.at,
        closed.id, done.node, done.token, closed.output, of.id, of.at, told.detail, ended.detail,
    )  # fmt: skip


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
    """Check whether decisions of the general rules have only outputs that a plain rollback has.

    The general rules decided them for the sake of forks, say, that had ended before.
    """
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
        and not (any(_others(failed)) or any(_others(plan)) or failed.moved)
    )


def _is_plain_end(closed: Closed) -> bool:
    return closed.chosen == NOTHING_CHOSEN and closed.output is None and closed.ordinal == 0


def _is_plain_compensation(opened: Opened) -> bool:
    return opened.kind == COMPENSATE and opened.behaviour == Behaviour.WORK and not opened.run


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [()] * width
