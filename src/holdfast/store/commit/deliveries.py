"""Deliveries in a commit: the answers to a fact so far, and the rows that a new one changes.

The commit holds the instance's lock, so no other process settles or promotes its deliveries meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import msgspec
from psycopg.pq.abc import PGresult

from holdfast.core.machine.acks import FAILED, Delivery, Settled
from holdfast.core.machine.gates import GATE
from holdfast.core.model.decision import Decision, Fact, Notice
from holdfast.core.model.ids import step_id
from holdfast.core.model.state import Instance
from holdfast.store.pg.session import rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

FactKey = tuple[bytes, int, bytes]  # instance, moment, fact
Row = tuple[Any, ...]

_REASONS: Final = {"ACK_SUSPEND": "warn", "ACK_FAIL": "warn"}


class Change(msgspec.Struct, frozen=True, gc=False):
    """An answer that changes a delivery, and what it changes."""

    key: FactKey
    delivery: Delivery
    settled: Settled
    org: str
    flow: str
    message: str | None
    date: int
    by: str = "system"
    why: str | None = None


def deliveries_of(keys: Sequence[FactKey]) -> Query:
    return SQL.read_deliveries.rows([(instance, instance[15], at, fact) for instance, at, fact in keys])


def found_deliveries(result: PGresult) -> dict[tuple[bytes, bytes], dict[bytes, Delivery]]:
    """The deliveries of each fact by consumer."""
    found: dict[tuple[bytes, bytes], dict[bytes, Delivery]] = {}
    for instance, fact, consumer, name, status, closed, attempts, most, critical, verdict, *rest in rows(result):
        kind, type, mode, code, settled, removed = rest
        found.setdefault((instance, fact), {})[consumer] = Delivery(
            consumer=consumer,
            name=name.decode(),
            status=status.decode(),
            is_closed=closed == b"\1",
            attempts=read_int(attempts),
            most=read_int(most),
            is_critical=critical == b"\1",
            verdict=_text(verdict),
            kind=kind.decode(),
            type=_text(type),
            mode=_text(mode),
            code=_text(code),
            is_settled=settled == b"\1",
            is_removed=removed == b"\1",
        )
    return found


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def halting_of(instances: Sequence[bytes]) -> Query:
    return SQL.read_halting.rows([(instance, instance[15]) for instance in instances])


def found_halting(result: PGresult) -> dict[bytes, set[tuple[bytes, bytes]]]:
    """The failed deliveries that halt each instance, as facts and consumers."""
    found: dict[bytes, set[tuple[bytes, bytes]]] = {}
    for instance, fact, consumer in rows(result):
        found.setdefault(instance, set()).add((fact, consumer))
    return found


def latest(changes: Iterable[Change]) -> list[Change]:
    """The last change of each delivery: one batch may have several answers to one fact."""
    return list({(c.key, c.delivery.consumer): c for c in changes}.values())


def requeue_rows(changes: Iterable[Change]) -> list[Row]:
    return sorted((*_place(c.key), c.delivery.consumer) for c in changes if c.settled.again)


def resolved_rows(changes: Iterable[Change]) -> list[Row]:
    """The deliveries that had failed and are sent again, or were processed after all."""
    return [
        (
            c.key[0], c.key[0][15], c.key[2], c.delivery.consumer, "replayed" if c.settled.again else "discarded", c.by,
            c.why,
        )
        for c in changes
        if c.delivery.status == FAILED and c.settled.status != FAILED
    ]  # fmt: skip


def close_rows(changes: Iterable[Change]) -> list[Row]:
    return [
        (*_place(c.key), c.delivery.consumer, c.settled.status, c.settled.is_closed, c.settled.verdict, c.message)
        for c in changes
        if not c.settled.again
    ]


def _place(key: FactKey) -> tuple[bytes, int, int, bytes]:
    instance, at, fact = key
    return instance, instance[15], at, fact


def promote_rows(changes: Iterable[Change]) -> list[Row]:
    """Each consumer of an instance once: the next facts of its line may be due now."""
    return sorted(
        {(c.key[0], c.key[0][15], c.delivery.consumer) for c in changes if c.settled.is_closed or c.settled.again}
    )


def letter_rows(changes: Iterable[Change]) -> list[Row]:
    return [
        (
            _id_of(c, b"letter"), c.key[0][15], c.org, c.key[0], c.flow, None, msgspec.json.encode(_envelope(c)),
            c.settled.notice or "ACK_FAILED", msgspec.json.encode({"code": "ACK_FAILED", "message": tell(c)}),
            c.delivery.attempts,
        )
        for c in changes
        if c.settled.buries
    ]  # fmt: skip


def notice_rows(changes: Iterable[Change]) -> list[Row]:
    return [
        (
            _id_of(c, b"notice"), c.key[0][15], c.org, c.settled.notice, _REASONS[c.settled.notice], tell(c), c.key[0],
            c.delivery.name, msgspec.json.encode(_envelope(c)),
        )
        for c in changes
        if c.settled.notice is not None
    ]  # fmt: skip


def tell(change: Change) -> str:
    """Name the consumer and the fact, for people."""
    delivery, guid = change.delivery, UUID(bytes=change.key[2])
    what = delivery.code or delivery.kind
    because = f": {change.message}" if change.message else ""
    return f"Consumer {delivery.name!r} has not processed {what} {guid} in {delivery.attempts} attempts{because}"


def _envelope(c: Change) -> dict[str, Any]:
    return {
        "ack_guid": str(UUID(bytes=c.key[2])),
        "at": c.key[1],
        "consumer_id": str(UUID(bytes=c.delivery.consumer)),
        "consumer": c.delivery.name,
        "kind": c.delivery.kind,
        "hook": c.delivery.code,
        "attempts": c.delivery.attempts,
        "message": c.message,
    }


def _id_of(c: Change, what: bytes) -> bytes:
    """A letter about a delivery is always the same one; each notice is another."""
    instance, _, fact = c.key
    if what == b"letter":
        return step_id(c.key[1], sha256(b"%b|%b|letter" % (fact, c.delivery.consumer)).digest(), instance[15])
    seed = b"%b|%b|%b|%d" % (fact, c.delivery.consumer, what, c.delivery.attempts)
    return step_id(c.date, sha256(seed).digest(), instance[15])


# --- rows of a decision -------------------------------------------------------------------------------------------


def fact_rows(before: Instance, version: int, facts: Sequence[Fact]) -> tuple[list[Row], list[Row]]:
    """The rows of facts, and those from which their deliveries are made."""
    environment, _, definition = before.flow.partition(".")
    id, bucket, org = before.id, before.id[15], before.org
    acks = [
        (id, bucket, f.id, org, environment, definition, f.kind, f.type, f.mode, f.state, f.event, f.code, f.step,
         version, ordinal, f.needs_ack, f.starts, f.ends, f.body)
        for ordinal, f in enumerate(facts)
    ]  # fmt: skip
    deliveries = [
        (id, bucket, f.id, org, environment, definition, f.kind, f.state, f.event, f.code, version, ordinal, f.starts,
         f.ends, None if f.number is None else str(f.number))
        for ordinal, f in enumerate(facts)
    ]  # fmt: skip
    return acks, deliveries


def gate_rows(decision: Decision) -> list[Row]:
    """The gates that hold an instance from this decision on. Those that no consumer takes hold nothing."""
    after = decision.instance
    told = {fact.id for fact in decision.facts if fact.type == GATE}
    held = [wait.ref for token in after.state.tokens.values() for wait in token.waits if wait.kind == GATE]
    return [(after.id, after.id[15], ref, after.org) for ref in held if ref in told]


def told_rows(before: Instance, version: int, date: int, notices: Sequence[Notice]) -> list[Row]:
    return [
        notice_row(b"%b|%d|%d" % (before.id, version, n), before.org, before.id, date, notice)
        for n, notice in enumerate(notices)
    ]


def notice_row(seed: bytes, org: str, instance: bytes, date: int, notice: Notice) -> Row:
    """The row of a notice about an instance; its id follows from the seed."""
    id, detail = step_id(date, sha256(b"%b|notice" % seed).digest(), instance[15]), notice.detail
    if notice.node is not None:
        detail = {"node": notice.node, **detail}
    return id, instance[15], org, notice.code, notice.kind, notice.message, instance, None, msgspec.json.encode(detail)
