"""Events: facts as consumers get them, and what a handler may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.ack_handles import encode_ack
from holdfast.core.model.timestamps import from_datetime, seconds
from holdfast.errors import Refused
from holdfast.store.deliveries import Claimed


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

PresentEntry = Callable[[str, bytes], Awaitable[int | None]]  # organisation, instance → number of its entry


class ConsumerEvent:
    """One fact for one consumer, on one attempt. `ack` is the handle to answer with."""

    def __init__(self, claimed: Claimed, environment: str, consumer: str, present: PresentEntry) -> None:
        self._claimed = claimed
        self._present = present
        self._body = _decode(claimed.body)
        self.consumer = consumer
        self.environment = environment
        self.attempt = claimed.attempt
        self.max_attempts = claimed.most

    def __repr__(self) -> str:
        what = self.hook or f"{self.from_state} → {self.to_state}"
        return f"ConsumerEvent({self.kind} {what} of {self.definition} {self.external_ref}, attempt {self.attempt})"

    @property
    def raw(self) -> bytes:
        """The body as JSON, byte for byte the same on every attempt."""
        return self._claimed.body

    @cached_property
    def ack(self) -> str:
        return encode_ack(self._claimed.key.fact)

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
        return self._claimed.needs_ack

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

    async def is_current(self) -> bool:
        """Check that the instance is still at the entry the fact is about."""
        return await self._present(self._claimed.org, self._claimed.key.fact.instance) == self.lifecycle


# --- answers of a handler --------------------------------------------------------------------------------------------


class Trigger(msgspec.Struct, frozen=True):
    """Answer: processed, and the next event of the same instance, decided in the same commit."""

    event: str | int
    payload: Any = None


class Verdict(msgspec.Struct, frozen=True):
    """Answer to a gate: processed, with success or failure. Another answer is a success."""

    is_success: bool
    message: str | None = None
    then: Trigger | None = None

    @classmethod
    def success(cls, then: Trigger | None = None) -> Verdict:
        return cls(True, None, then)

    @classmethod
    def failure(cls, message: str | None = None, then: Trigger | None = None) -> Verdict:
        return cls(False, message, then)

    @property
    def word(self) -> str:
        return "success" if self.is_success else "failure"


class Postpone(Exception):
    """Answer, returned or raised: send the fact again at another moment, `at` or after `delay` seconds."""

    def __init__(self, *, at: datetime | None = None, delay: float | None = None, message: str | None = None) -> None:
        if (at is None) == (delay is None):
            raise Refused(
                "A postponement names a moment or a delay.",
                code="MOMENT_INVALID",
                hint="Write Postpone(delay=60) or Postpone(at=…).",
            )
        super().__init__(message or "postponed")
        self.at = at
        self.delay = delay
        self.message = message


LATEST: int = 36_525 * 86_400 * 1_000_000  # microseconds from now


def moment_of(wish: Postpone, now: int) -> int:
    """The moment of a postponement; nothing is put off for more than a hundred years."""
    latest = now + LATEST
    if wish.at is not None:
        due = from_datetime(wish.at)
    elif wish.delay is not None and wish.delay < LATEST / 1_000_000:
        due = now + seconds(max(0.0, wish.delay))
    else:
        due = latest + 1
    if due > latest:
        raise Refused(
            "A fact is put off for a hundred years at most.", code="MOMENT_INVALID", hint="Name an earlier moment."
        )
    return due


Answer = Trigger | Verdict | Postpone | None
