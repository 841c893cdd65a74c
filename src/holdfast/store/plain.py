"""Rows of plain decisions: one row each for a statement that writes all its tables.

Nearly every commit of a busy engine consists of them. What is the same for all (statuses, event types, ordinals) stands
in the SQL, so a step costs the wire two dozen values instead of ninety and the server one statement instead of six.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.decision import Decision
from holdfast.core.state import Instance, encode_state
from holdfast.errors import HoldfastError
from holdfast.settings import FASTEST_AGING

AGING: Final = 0.5  # points of priority a waiting step gains per second, unless an option says otherwise
CENTURY: Final = 36_525 * 86_400 * 1_000_000


class NewInstance(msgspec.Struct, frozen=True, gc=False):
    """What a start brings beside the decision: columns that are written once."""

    input: bytes
    business_key: str | None = None
    attributes: bytes | None = None
    created_by: str | None = None


def weight_of_a_point(aging: float | None) -> int:
    """Microseconds of waiting that outweigh one point of priority; without aging more than anything ever waits."""
    if aging is not None and not 0 <= aging <= FASTEST_AGING:
        raise HoldfastError(
            f"Aging by {aging} points per second is not possible.",
            code="SETTING_INVALID",
            hint=f"Use 0 to {FASTEST_AGING}; 0 or None means strict priority.",
        )
    return min(round(1_000_000 / aging), CENTURY) if aging else CENTURY


POINT: Final = weight_of_a_point(AGING)


def ripe_at(now: int, priority: int, point: int = POINT) -> int:
    """Order of the queue: a step of low priority is as if it were enqueued later, so it ages instead of starving."""
    return now + (100 - priority) * point


def begun(decision: Decision, new: NewInstance, point: int) -> tuple[Any, ...]:
    """A row of begin_instances."""
    after, opened, dispatch = decision.instance, decision.opened[0], decision.dispatches[0]
    id, input = after.id, new.input
    return (
        id, id[15], after.org, after.definition, after.flow, after.flow_version, encode_state(after.state),
        None if after.data is input else after.data, input, new.business_key, new.attributes, new.created_by,
        after.trace, decision.events[0].actor, opened.node, opened.id, opened.key, dispatch.queue, dispatch.timeout,
        ripe_at(dispatch.at, dispatch.priority, point),
    )  # fmt: skip


def advanced(decision: Decision, before: Instance) -> tuple[Any, ...]:
    """A row of advance_steps."""
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
    """A row of finish_instances."""
    after, opened, closed = decision.instance, decision.opened[0], decision.closed[0]
    id, left, output = after.id, decision.events[0], closed.output
    return (
        id, id[15], after.org, after.version, None if after.data is output else after.data, opened.hop, opened.token,
        closed.id, closed.at, left.node, left.token, closed.chosen, output, opened.node, decision.released[0].fence,
        after.entity_version, opened.id, opened.key,
    )  # fmt: skip


def undone(decision: Decision) -> tuple[Any, ...]:
    """A row of undo_steps."""
    after, closed, dispatch = decision.instance, decision.closed[0], decision.dispatches[0]
    id, (done, begun), (of, following) = after.id, decision.events, decision.moved
    return (
        id, id[15], after.org, after.version, encode_state(after.state), dispatch.path, dispatch.fence, closed.at,
        closed.id, done.node, done.token, closed.output, of.id, of.at, dispatch.step, begun.node, begun.token,
        following.id, following.at, dispatch.queue, dispatch.timeout,
    )  # fmt: skip


def rolled_back(decision: Decision) -> tuple[Any, ...]:
    """A row of end_rollbacks."""
    after, closed, released, [of] = decision.instance, decision.closed[0], decision.released[0], decision.moved
    id, (done, told, ended) = after.id, decision.events
    return (
        id, id[15], after.org, after.version, after.status, after.reason, released.path, released.fence, closed.at,
        closed.id, done.node, done.token, closed.output, of.id, of.at, told.detail, ended.detail,
    )  # fmt: skip
