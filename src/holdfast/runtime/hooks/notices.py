"""Notices: changes of flows in a commit, derived from the statuses before and after."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.core.model.decision import Decision
from holdfast.core.model.status import InstanceStatus
from holdfast.core.model.timestamps import to_datetime

if TYPE_CHECKING:
    from holdfast.runtime.commit.batch import Plan
    from holdfast.store.commit.batch import Entry

_decode = msgspec.json.decode
_encode = msgspec.json.encode
_S: Final = InstanceStatus
_STILL: Final = frozenset({_S.SUSPENDED, _S.DLQ})
_HOOKS: Final = {
    _S.COMPLETED: "flow_completed",
    _S.FAILED: "flow_failed",
    _S.CANCELLED: "flow_cancelled",
    _S.ABORTED: "flow_aborted",
    _S.SUSPENDED: "flow_suspended",
    _S.DLQ: "flow_suspended",
}
# A rollback may begin and end within one commit, where no status in between is to be seen.
_TOLD_BY: Final = {
    "instance_started": "flow_started",
    "rollback_started": "rollback_started",
    "rollback_completed": "rollback_completed",
}


class FlowContext:
    """Instance as left by the commit that the notice is about."""

    __slots__ = ("_decision", "_error", "_now", "actor", "was")

    def __init__(self, decision: Decision, was: InstanceStatus, actor: str, error: bytes | None, now: int) -> None:
        self._decision = decision
        self._error = error
        self.actor = actor  # the cause of the change; `system` without a person
        self._now = now
        self.was = was

    @property
    def instance_id(self) -> UUID:
        return UUID(bytes=self._decision.instance.id)

    @property
    def instance(self) -> str:
        return str(self.instance_id)

    @property
    def flow(self) -> str:
        return self._decision.instance.flow

    @property
    def flow_version(self) -> int:
        return self._decision.instance.flow_version

    @property
    def org(self) -> str:
        return self._decision.instance.org

    tenant = org

    @property
    def status(self) -> InstanceStatus:
        return self._decision.instance.status

    @property
    def reason(self) -> str | None:
        return self._decision.instance.reason

    @property
    def error(self) -> dict[str, Any] | None:
        """The failure this commit brought, with its `code` and `message`; a rollback begins with the one it is for, and
        an instance that failed ends with its last one."""
        return None if self._error is None else _decode(self._error)

    @property
    def at(self) -> datetime:
        """The database's time of the commit."""
        return to_datetime(self._now)

    @property
    def data(self) -> Any:
        return _decode(self._decision.instance.data)


def lacks_error(context: FlowContext) -> bool:
    """The commit that ends a rollback brings no failure: what it is for came with an earlier one."""
    return context.status is _S.FAILED and context.error is None


def recall_error(context: FlowContext, error: Any) -> None:
    context._error = None if error is None else _encode(error)  # pyright: ignore[reportPrivateUsage]


class Notice(NamedTuple):
    hook: str
    context: FlowContext


def notices(plan: Plan) -> Iterator[Notice]:
    for entry in plan.entries.values():
        was, error = entry.before.status, None
        for decision in entry.decisions:
            error = decision.error or error
            context = FlowContext(decision, was, _actor(entry, decision), error, decision.instance.updated)
            yield from _of_decision(context, decision)
            was = decision.instance.status


def _of_decision(context: FlowContext, decision: Decision) -> Iterator[Notice]:
    for event in decision.events:
        if event.type in _TOLD_BY:
            yield Notice(_TOLD_BY[event.type], context)
    was, status = context.was, decision.instance.status
    if status == was:
        return
    if was in _STILL and status is _S.RUNNING:
        yield Notice("flow_resumed", context)
    elif status in _HOOKS:
        yield Notice(_HOOKS[status], context)


def _actor(entry: Entry, decision: Decision) -> str:
    """The actor of a notice: the caller of a rollback is the actor of all its consequences."""
    asked = entry.before.state.rollback or entry.decisions[0].instance.state.rollback
    if asked is not None and asked.by is not None:
        return asked.by
    return decision.events[-1].actor if decision.events else "system"
