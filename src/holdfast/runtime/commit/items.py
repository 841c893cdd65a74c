"""Items of a commit: a result, a start, a request of the API, a signal out of the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.signals import (
    SYSTEM,
    Abort,
    Acknowledged,
    Actor,
    Cancel,
    ChildFinished,
    Decided,
    EntityChanged,
    EventArrived,
    EventsExpired,
    Failure,
    ForceFail,
    GateDone,
    ReceiptArrived,
    Resume,
    Signal,
    Started,
    Suspend,
    TimerDue,
    Triggered,
    VerbCalled,
)
from holdfast.core.model.state import Instance
from holdfast.errors import PayloadError
from holdfast.store.commit.ensuring import Ensure
from holdfast.store.commit.locks import QueuedSignal
from holdfast.store.commit.needs import SignalContent
from holdfast.store.commit.rows import NewInstance


class Item(msgspec.Struct, gc=False):
    """One signal for one instance on its way into a commit."""

    instance: bytes
    signal: Signal
    actor: Actor = SYSTEM
    fresh: Instance | None = None  # a start that is decided upon in the commit that inserts it
    new: NewInstance | None = None
    queued: QueuedSignal | None = None  # it came out of the queue and is consumed with the commit
    receipt: str | None = None  # the signal's own id: it must be applied once
    content: SignalContent | None = None  # what a repeat under that id must say, where the signal does not tell
    answer: asyncio.Future[Any] | None = None  # of an Outcome
    tries: int = 0
    refused_alone: int = 0  # by a guard, in a transaction of its own
    unsure: bool = False  # the answer of a commit with it was lost: it may have been applied
    input: bytes | None = None  # what the step was called with, should its result turn out not to be storable
    unmade: bool = False  # a result without a call, though the step was leased with one that counts
    ensure: Ensure | None = None  # of a trigger: the instance to insert, if it is not there
    remembered: bool = False  # of a trigger: its instance was not looked up, so another one may be meant by now
    deadline: float = 0.0  # of the loop's clock: when an API request gives up on a busy instance


class Overtaken(Exception):
    """Answer to a trigger sent from memory: its instance is over, so the reference must be looked up."""


class _Next(msgspec.Struct):
    """The event that an answer brings along."""

    event: str
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Envelope(msgspec.Struct):
    """The payload of a queued signal; every kind uses some of these."""

    actor: Actor | None = None
    event: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")
    node: str | None = None
    token: str | None = None
    path: str = ""
    wait: str = ""
    purpose: str = ""
    reason: str | None = None
    status: str = ""
    output: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None
    if_version: int | None = None
    keyed: str | None = None  # the event that was sent to a key, of which this is one delivery
    child: str | None = None
    effect: str | None = None
    task: str = ""
    decision: str = ""
    comment: str | None = None
    expired: tuple[dict[str, Any], ...] = ()  # kept events that were not taken in time
    ack: str = ""  # of a consumer's answer, as the next five
    at: int = 0
    consumer: str = ""
    outcome: str = ""
    verdict: str | None = None
    then: _Next | None = None
    expected: int | None = None  # of a trigger, as the next three
    needs_ack: bool = True
    happened_at: int | None = None
    request: str | None = None
    origin: str | None = (
        None  # of a start: the instance that is run again · of a document's change: the one that made it
    )
    version: int = 0  # of a document since its change, as the next two
    action: str = ""
    material: bool = True


_decode = msgspec.json.Decoder(_Envelope).decode


def from_queue(queued: QueuedSignal, input: bytes | None) -> Item:
    """The item a queued signal stands for; an envelope that makes no sense is a PayloadError."""
    try:
        envelope = _decode(queued.payload)
        signal = _SIGNALS[queued.kind](queued, envelope, input)
    except (msgspec.MsgspecError, KeyError, ValueError) as failure:
        raise PayloadError(
            f"The queued {queued.kind!r} signal cannot be read: {failure}",
            code="SIGNAL_UNREADABLE",
            hint="Look at the dead letter's envelope.",
        ) from None
    item = Item(queued.instance, signal, envelope.actor or SYSTEM, queued=queued)
    if isinstance(signal, Triggered) and envelope.request is not None:
        item.receipt = request_key(envelope.request)
    return item


def request_key(request: str) -> str:
    """The key of a trigger's receipt. Ids of other signals are UUIDs, so the two never meet."""
    return f"request:{request}"


def _then(told: _Next | None) -> Triggered | None:
    return None if told is None else Triggered(told.event, _optional(told.payload))


def _optional(raw: msgspec.Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def _hex(id: str | None) -> bytes | None:
    return None if id is None else bytes.fromhex(id)


_Reader = Callable[[QueuedSignal, _Envelope, bytes | None], Signal]

_SIGNALS: dict[str, _Reader] = {
    "started": lambda _q, e, input: Started(input if input is not None else b"{}", e.node, e.origin),
    "timer": lambda _q, e, _: TimerDue(e.path, e.wait, e.purpose),
    "event": lambda q, e, _: EventArrived(
        q.id if e.keyed is None else UUID(e.keyed).bytes,
        e.event,
        _optional(e.payload),
        e.node,
        e.token,
        e.if_version,
        keyed=e.keyed is not None,
    ),
    "lapsed": lambda _q, e, _: EventsExpired(e.expired),
    "decided": lambda q, e, _: Decided(
        q.id, UUID(e.task).bytes, e.decision, _optional(e.payload), e.comment, None, e.if_version
    ),
    "child_finished": lambda _q, e, _: ChildFinished(e.token or "", e.status, bytes(e.output), e.error, _hex(e.child)),
    "receipt": lambda _q, e, _: ReceiptArrived(e.token or "", bytes(e.output), e.error, _hex(e.effect)),
    "cancel": lambda _q, e, _: Cancel(e.reason, e.if_version),
    "abort": lambda _q, e, _: Abort(e.reason, e.if_version),
    "suspend": lambda _q, e, _: Suspend(e.reason or "SUSPENDED_BY_OPERATOR", e.if_version),
    "resume": lambda _q, e, _: Resume(e.reason, e.if_version),
    "triggered": lambda _q, e, _: Triggered(e.event, _optional(e.payload), e.expected, e.needs_ack, e.happened_at),
    "acked": lambda _q, e, _: Acknowledged(
        UUID(e.ack).bytes, e.at, UUID(e.consumer).bytes, e.outcome, e.reason, e.verdict, _then(e.then)
    ),
    "gate": lambda _q, e, _: GateDone(UUID(e.ack).bytes, "success"),  # no consumer takes it
    "verb": lambda q, e, _: VerbCalled(q.id, e.action, e.version, _optional(e.payload), e.comment, e.if_version),
    "entity": lambda _q, e, _: EntityChanged(e.version, e.action, e.material, _hex(e.origin)),
    "force_fail": lambda _q, e, _: ForceFail(e.reason, e.if_version),
}
