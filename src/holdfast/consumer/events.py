"""Events: facts as consumers get them, with a name and a type for each field."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec


class Param(msgspec.Struct, frozen=True):
    """A named set of parameters out of the policy's catalogue."""

    code: str
    data: Any = None


class _Body(msgspec.Struct, frozen=True):
    """The body of a fact: the same for every consumer and every redelivery."""

    kind: str
    instance: str
    environment: str
    definition: str
    version: int
    to: str
    event: str
    lifecycle: int
    actor: str
    external_ref: str
    ack_guid: str
    occurred_at: datetime
    from_: str | None = msgspec.field(name="from", default=None)
    code: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    params: tuple[Param, ...] = ()
    on_success: str | None = None
    on_failure: str | None = None
    needs_ack: bool = True
    hook: str | None = None
    type: str | None = None
    order: int | None = None
    label: str | None = None
    not_before: datetime | None = None
    deadline: datetime | None = None
    verdict: str | None = None
    send: str | None = None


_decode = msgspec.json.Decoder(_Body).decode


class Event:
    """One fact for one consumer, on one attempt. `ack` is the handle to answer with."""

    def __init__(
        self, body: bytes, ack: str, *, environment: str, consumer: str, attempt: int, max_attempts: int
    ) -> None:
        self.raw = body  # JSON, byte for byte the same on every attempt
        self.ack = ack
        self.environment = environment
        self.consumer = consumer
        self.attempt = attempt
        self.max_attempts = max_attempts
        self._body = _decode(body)

    def __repr__(self) -> str:
        what = self.hook or f"{self.from_state} → {self.to_state}"
        return f"<{self.kind} {what} of {self.definition} {self.external_ref}, attempt {self.attempt}>"

    @property
    def ack_guid(self) -> UUID:
        return UUID(self._body.ack_guid)

    @property
    def kind(self) -> str:
        """Kind of the fact: transition, hook or complete."""
        return self._body.kind

    @property
    def instance(self) -> str:
        return self._body.instance

    @property
    def external_ref(self) -> str:
        return self._body.external_ref

    @property
    def definition(self) -> str:
        return self._body.definition

    @property
    def version(self) -> int:
        """Version of the blueprint."""
        return self._body.version

    @property
    def from_state(self) -> str | None:
        return self._body.from_

    @property
    def to_state(self) -> str:
        return self._body.to

    @property
    def event(self) -> str:
        """Name of the event that led to the state."""
        return self._body.event

    @property
    def code(self) -> int | None:
        """Code of the event."""
        return self._body.code

    @property
    def lifecycle(self) -> int:
        """Number of the entry that the fact is about."""
        return self._body.lifecycle

    @property
    def actor(self) -> str:
        return self._body.actor

    @cached_property
    def payload(self) -> Any:
        return msgspec.json.decode(self._body.payload)

    @property
    def params(self) -> tuple[Param, ...]:
        return self._body.params

    @property
    def on_success(self) -> str | None:
        return self._body.on_success

    @property
    def on_failure(self) -> str | None:
        return self._body.on_failure

    @property
    def occurred_at(self) -> datetime:
        return self._body.occurred_at

    @property
    def needs_ack(self) -> bool:
        return self._body.needs_ack

    @property
    def hook(self) -> str | None:
        """Code of the hook."""
        return self._body.hook

    @property
    def type(self) -> str | None:
        """Type of the hook: gate or effect."""
        return self._body.type

    @property
    def order(self) -> int | None:
        return self._body.order

    @property
    def label(self) -> str | None:
        return self._body.label

    @property
    def not_before(self) -> datetime | None:
        return self._body.not_before

    @property
    def deadline(self) -> datetime | None:
        return self._body.deadline

    @property
    def verdict(self) -> str | None:
        """Verdict of the gates, in a fact of their completion."""
        return self._body.verdict

    @property
    def send(self) -> str | None:
        """Name of the event to send now, in a fact of the gates' completion."""
        return self._body.send
