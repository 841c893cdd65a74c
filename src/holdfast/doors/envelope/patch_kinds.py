"""Fields and events of each kind of node in a patch: what it needs, what it may have, on which events it is left."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.doors.envelope.model import PatchNode

COMPLETED: Final = "completed"
TIMEOUT: Final = "timeout"
ALWAYS: Final = frozenset({"id", "kind", "name", "about", "window"})
FIELDS: Final = tuple(field for field in PatchNode.__struct_fields__ if field not in ALWAYS)


class Takes(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of one kind, and the events of its edges. A step that is left on `onward` did what it is for."""

    needs: tuple[str, ...] = ()
    needs_one: tuple[str, ...] = ()  # exactly one of them
    needs_any: tuple[str, ...] = ()  # at least one of them
    may: tuple[str, ...] = ()
    onward: str = COMPLETED
    others: tuple[str, ...] = ()  # further events

    @property
    def fields(self) -> frozenset[str]:
        return frozenset((*self.needs, *self.needs_one, *self.needs_any, *self.may))

    @property
    def events(self) -> tuple[str, ...]:
        return (self.onward, *self.others)


TAKES: Final[dict[str, Takes]] = {
    "condition": Takes(),
    "split": Takes(),
    "join": Takes(needs=("mode",)),
    "script": Takes(needs=("sets",), others=("error",)),
    "rule": Takes(needs=("table",), may=("table_version",), others=("error",)),
    "action": Takes(needs=("action",), may=("payload", "run_as"), others=("error",)),
    "policy_gate": Takes(needs_any=("capability", "when"), others=("error",)),
    "approval": Takes(
        needs=("approvers",),
        may=("form", "due"),
        onward="approved",
        others=("rejected", TIMEOUT, "error"),
    ),
    "wait_timer": Takes(needs_one=("delay", "until", "cron"), may=("timezone",), others=("error",)),
    "wait_event": Takes(needs=("event",), may=("key", "deadline"), others=(TIMEOUT, "error")),
    "webhook_out": Takes(needs=("url",), may=("headers", "secret", "payload", "awaits"), others=("error",)),
    "notification": Takes(needs=("channel",), may=("to", "subject", "text", "payload"), others=("error",)),
    "sub_flow": Takes(needs=("flow",), may=("flow_version", "payload", "deadline"), others=(TIMEOUT, "error")),
}
