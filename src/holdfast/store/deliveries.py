"""Deliveries of facts in the database: claim due ones, note what consumers said at once, list open ones.

Nothing here locks an instance. A claim skips what others hold; everything else touches single rows for one statement.
A delivery is closed by a commit of its instance (`store/commit`). One that is settled in the transaction that processed
it has that in its row at once, and the commit follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.ack_handles import AckAddress, encode_ack
from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

FIRST: Final = (-(2**63), bytes(16))  # before the first delivery of any list
CLAIM_BYTES: Final = 8 * 1024 * 1024  # of the bodies of one consumer in one claim; the first one is always there


class DeliveryKey(msgspec.Struct, frozen=True, gc=False):
    """Key of a delivery's row: a fact and a consumer."""

    fact: AckAddress
    consumer: bytes

    def row(self) -> tuple[bytes, int, int, bytes, bytes]:
        return self.fact.instance, self.fact.instance[15], self.fact.at, self.fact.fact, self.consumer


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A fact taken for one attempt, or one whose attempts are `over`."""

    key: DeliveryKey
    org: str
    attempt: int
    most: int
    seq: int
    ordinal: int
    over: str | None  # exhausted | expired
    needs_ack: bool
    kind: str
    state: str
    step: bytes
    body: bytes  # JSON
    is_probe: bool = False  # its attempt counts when it has reached somebody

    @property
    def counted(self) -> int:
        """Attempts in its row after the claim."""
        return self.attempt - self.is_probe


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A request for facts of one consumer: their number, and the time after which each is due again."""

    consumer: bytes
    room: int
    resend: int  # microseconds
    is_probe: bool = False  # of a consumer that is down


class Delivery(msgspec.Struct, frozen=True):
    """One fact for one consumer as a user sees it."""

    ack: str
    instance_id: str
    environment: str
    consumer: str
    consumer_id: str
    definition: str
    external_ref: str
    kind: str
    state: str
    event: str | None
    hook: str | None
    status: str
    attempts: int
    max_attempts: int
    next_due_at: datetime | None
    delivered_at: datetime | None
    closed_at: datetime | None
    verdict: str | None
    message: str | None
    created_at: datetime


async def claim_deliveries(
    session: Session, wanted: Sequence[Wanted], page: int, delivered_resend: int
) -> list[Claimed]:
    """Take due facts, `page` and `CLAIM_BYTES` at most of each consumer, in the order in which it is to get them."""
    if not wanted:
        return []
    batch = [(w.consumer, w.room, w.resend, int(not w.is_probe)) for w in sorted(wanted, key=lambda w: w.consumer)]
    probed = {w.consumer for w in wanted if w.is_probe}
    results = await session.once(PIN, SQL.claim_deliveries.rows(batch, page, delivered_resend, CLAIM_BYTES))
    claimed = [_claimed(row, probed) for row in rows(results[1])]
    return sorted(claimed, key=lambda c: (c.key.fact.at, c.seq, c.ordinal))


async def read_clock(session: Session) -> int:
    [result] = await session.once(SQL.read_clock.one())
    return read_int(result.get_value(0, 0) or b"")


async def read_next_due(session: Session, consumers: Sequence[bytes]) -> Mapping[bytes, float]:
    """Seconds until the first fact of each consumer is due; those without any are left out."""
    if not consumers:
        return {}
    results = await session.once(PIN, SQL.read_next_delivery.arrays([sorted(consumers)]))
    return {consumer: read_int(due) / 1_000_000 for consumer, due in rows(results[1])}


async def mark_delivered(session: Session, keys: Sequence[DeliveryKey], resend: int) -> set[DeliveryKey]:
    """Note that facts were received; those of which that was news."""
    if not keys:
        return set()
    results = await session.once(PIN, SQL.mark_deliveries.rows(_sorted(keys), resend))
    return _changed(keys, rows(results[1]))


async def postpone(session: Session, wishes: Sequence[tuple[DeliveryKey, int, str | None]]) -> set[DeliveryKey]:
    """Send facts again at another moment, each with the consumer's reason; those that were open."""
    if not wishes:
        return set()
    batch = [(*key.row(), due, message) for key, due, message in sorted(wishes, key=lambda w: w[0].row())]
    results = await session.once(PIN, SQL.postpone_deliveries.rows(batch))
    return _changed([key for key, _, _ in wishes], rows(results[1]))


async def extend(session: Session, claims: Sequence[Claimed], resend: int) -> set[DeliveryKey]:
    """Keep facts from being sent again while their handlers run; those whose attempt is still the last one."""
    return await _move(session, [(claimed, 0) for claimed in claims], resend)


async def give_back(session: Session, claims: Sequence[Claimed]) -> set[DeliveryKey]:
    """Give back facts that were claimed and never sent: the attempt does not count."""
    return await _move(session, [(claimed, int(not claimed.is_probe)) for claimed in claims], 0)


async def count_probe(session: Session, probe: Claimed, resend: int) -> set[DeliveryKey]:
    """Count the attempt of a probe that has reached its consumer."""
    return await _move(session, [(probe, -1)], resend)


async def _move(session: Session, claims: Sequence[tuple[Claimed, int]], delay: int) -> set[DeliveryKey]:
    """Take so many attempts of each claim back, and set when it is due."""
    if not claims:
        return set()
    batch = sorted((*claimed.key.row(), claimed.counted, back, delay) for claimed, back in claims)
    results = await session.once(PIN, SQL.move_deliveries.rows(batch))
    return _changed([claimed.key for claimed, _ in claims], rows(results[1]))


class Settlement(msgspec.Struct, frozen=True):
    """An answer that is stored in the transaction that processed its fact."""

    org: str
    environment: str
    consumer: str
    ack: str
    message: str | None = None
    verdict: str | None = None
    event: str | None = None  # the next one
    payload: bytes | None = None

    def query(self) -> Query:
        """Settle the fact; the answer is false where it was settled before."""
        return SQL.settle_delivery.one(
            self.consumer, self.ack, self.message, self.environment, self.verdict, self.event, self.payload, self.org
        )


async def list_in_hand(session: Session, keys: Sequence[DeliveryKey], resend: int) -> set[DeliveryKey]:
    """Find the facts that were sent and have no answer; one that is put off for longer than `resend` is in no hand."""
    if not keys:
        return set()
    results = await session.once(PIN, SQL.list_in_hand.rows(_sorted(keys), resend))
    return _changed(keys, rows(results[1]))


async def is_there(session: Session, key: DeliveryKey) -> bool:
    results = await session.once(PIN, SQL.find_delivery.one(*key.row()))
    return results[1].ntuples > 0


async def list_open_deliveries(
    session: Session, org: str, environment: str, consumer: str, after: tuple[int, bytes], limit: int
) -> list[Delivery]:
    """Facts that are open for a consumer, oldest first."""
    query = SQL.list_open_deliveries.one(org, environment, consumer, *after, limit)
    results = await session.once(SQL.use_tenant.one(org), query)
    return [_delivery(row) for row in rows(results[1])]


async def list_deliveries_of_instance(
    session: Session,
    org: str,
    instance: bytes,
    after: tuple[int, bytes],
    limit: int,
    *,
    closed: bool,
    after_consumer: bytes = bytes(16),
) -> list[Delivery]:
    """Deliveries of an instance; several consumers have one of the same fact, so a place among them names one."""
    query = SQL.list_deliveries_of_instance.one(
        instance, instance[15], org, closed, *after, limit, after_consumer
    )  # fmt: skip
    results = await session.once(SQL.use_tenant.one(org), query)
    return [_delivery(row) for row in rows(results[1])]


def _sorted(keys: Sequence[DeliveryKey]) -> list[tuple[bytes, int, int, bytes, bytes]]:
    return sorted(key.row() for key in keys)


def _changed(keys: Sequence[DeliveryKey], found: list[list[Any]]) -> set[DeliveryKey]:
    there = {(row[0], row[1]) for row in found}
    return {key for key in keys if (key.fact.fact, key.consumer) in there}


def _claimed(row: list[Any], probed: Set[bytes]) -> Claimed:
    (instance, at, fact, consumer, org, attempt, most, seq, ordinal, over, needs_ack, kind, state, step,
     body) = row  # fmt: skip
    is_probe = consumer in probed
    return Claimed(
        key=DeliveryKey(AckAddress(instance, read_int(at), fact), consumer),
        org=org.decode(),
        attempt=read_int(attempt) + is_probe,
        most=read_int(most),
        seq=read_int(seq),
        ordinal=read_int(ordinal),
        over=_text(over),
        needs_ack=needs_ack == b"\1",
        kind=kind.decode(),
        state=state.decode(),
        step=step,
        body=body,
        is_probe=is_probe,
    )


def _delivery(row: list[Any]) -> Delivery:
    (instance, created, fact, environment, consumer, _, _, status, attempts, most, due, delivered, closed, verdict,
     message, kind, state, event, hook, ref, definition, consumer_id) = row  # fmt: skip
    return Delivery(
        ack=encode_ack(AckAddress(instance, read_int(created), fact)),
        instance_id=str(UUID(bytes=instance)),
        environment=environment.decode(),
        consumer=consumer.decode(),
        consumer_id=str(UUID(bytes=consumer_id)),
        definition=definition.decode(),
        external_ref=ref.decode(),
        kind=kind.decode(),
        state=state.decode(),
        event=_text(event),
        hook=_text(hook),
        status=status.decode(),
        attempts=read_int(attempts),
        max_attempts=read_int(most),
        next_due_at=_moment(due),
        delivered_at=_moment(delivered),
        closed_at=_moment(closed),
        verdict=_text(verdict),
        message=_text(message),
        created_at=to_datetime(read_int(created)),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _moment(value: bytes | None) -> datetime | None:
    return None if value is None else to_datetime(read_int(value))
