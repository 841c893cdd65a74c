"""Triggers at the edge: what a caller passes in, checked, and the answer as a caller reads it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.machine.triggers import Answer
from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import NotFound, Refused
from holdfast.runtime.validation import check_key, check_text, take_payload

MOST_REQUEST_BYTES: Final = 400
LARGEST: Final = 2**31 - 1

_decode = msgspec.json.Decoder(Answer).decode


class TriggerResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a trigger. One that is not applied has a reason and changes nothing."""

    applied: bool | None  # None: it was sent in the caller's transaction and is decided after its commit
    reason: str | None = None  # not_applicable | condition | terminal | not_active | blocked | overtaken
    from_state: str | None = None
    to_state: str | None = None
    event: str
    lifecycle: int | None = None  # the number of the entry the instance is at
    instance: str


class Wanted(msgspec.Struct, frozen=True):
    """A trigger as it was asked for."""

    flow: str
    ref: str
    event: str | int
    raw: bytes | None = None
    request: str | None = None
    by: str | None = None
    capabilities: tuple[str, ...] = ()
    expected: int | None = None
    version: int | None = None  # of the blueprint
    needs_ack: bool = True
    occurred_at: int | None = None


def flow_of(environment: Any, definition: Any) -> str:
    """The name of the flow that carries a machine."""
    for text, what in ((environment, "environment"), (definition, "definition")):
        check_text(text, what)
        if not isinstance(text, str) or not text:
            raise Refused(f"The {what} must be named.", code="TEXT_INVALID", hint="Give a name.")
    if "." in environment:
        raise Refused(
            f"The environment {environment!r} has a dot.", code="ENVIRONMENT_INVALID", hint="Environments have no dots."
        )
    return f"{environment}.{definition}"


def unknown_reference(flow: str, external_ref: str) -> NotFound:
    return NotFound(
        f"The machine {flow!r} has no instance {external_ref!r}.",
        code="INSTANCE_UNKNOWN",
        hint="The first trigger makes it.",
    )


def take_event(event: Any) -> str | int:
    if isinstance(event, bool) or not isinstance(event, str | int):
        raise Refused("An event has a name or a code.", code="EVENT_UNKNOWN", hint="Pass a text or a number.")
    if isinstance(event, str):
        check_text(event, "event")
    return event


def take_raw(payload: Any, event: str | int) -> bytes | None:
    return None if payload is None else take_payload(payload, "the payload", f"{event!r}")


def take_request(request: Any) -> str | None:
    if request is None:
        return None
    check_key(request, "request id")
    if len(request.encode()) > MOST_REQUEST_BYTES:
        raise Refused(
            f"The request id has more than {MOST_REQUEST_BYTES} bytes.", code="KEY_INVALID", hint="Hash longer ones."
        )
    return request


def take_number(value: Any, what: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise Refused(
            f"The {what} is no number of an entry.", code="NUMBER_INVALID", hint="Pass `lifecycle` of an answer."
        )
    return value


def take_occurred(moment: Any) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise Refused(
            "`occurred_at` must be a datetime with a time zone.", code="MOMENT_INVALID", hint="Use datetime.now(UTC)."
        )
    return from_datetime(moment)


def result_of(answer: bytes) -> TriggerResult:
    told = _decode(answer)
    return TriggerResult(
        applied=told.applied, reason=told.reason, from_state=told.from_state, to_state=told.to_state, event=told.event,
        lifecycle=told.lifecycle, instance=told.instance,
    )  # fmt: skip


def sent(event: str | int, instance: bytes) -> TriggerResult:
    """The result of a trigger in the caller's own transaction."""
    return TriggerResult(applied=None, event=str(event), instance=str(UUID(bytes=instance)))
