"""Rows of plain decisions: one row each for a statement that writes all its tables.

Nearly every commit of a busy engine consists of them. What is the same for all (statuses, event types, ordinals) stands
in the SQL, so a step costs the wire two dozen values instead of ninety and the server one statement instead of six.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.core.decision import Decision
from holdfast.core.state import Instance, encode_state

AGING_RATE: Final = 1.0  # points of priority a waiting step gains per second


class NewInstance(msgspec.Struct, frozen=True, gc=False):
    """What a start brings beside the decision: columns that are written once."""

    input: bytes
    business_key: str | None = None
    attributes: bytes | None = None
    created_by: str | None = None


def ripe_at(now: int, priority: int) -> int:
    """Order of the queue: a step of low priority is as if it were enqueued later, so it ages instead of starving."""
    return now + int((100 - priority) / AGING_RATE * 1_000_000)


def begun(decision: Decision, new: NewInstance) -> tuple[Any, ...]:
    """A row of begin_instances."""
    after, opened, dispatch = decision.instance, decision.opened[0], decision.dispatches[0]
    id, input = after.id, new.input
    return (
        id, id[15], after.org, after.definition, after.flow, after.flow_version, encode_state(after.state),
        None if after.data is input else after.data, input, new.business_key, new.attributes, new.created_by,
        after.trace, decision.events[0].actor, opened.node, opened.id, opened.key, dispatch.queue, dispatch.timeout,
        ripe_at(dispatch.at, dispatch.priority),
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
