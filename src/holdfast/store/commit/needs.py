"""Reads that a decision needs in the middle of a commit: early events, idle work, receipts, ancestors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec
from psycopg.pq.abc import PGresult

from holdfast.core.model.decision import EarlyEvents
from holdfast.core.model.ids import bucket_of
from holdfast.core.model.signals import SYSTEM, Actor
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

MOST_TRIED: Final = 32  # early events that are tried on one wait, should the first not fit its edges

_decode_actor = msgspec.json.Decoder(Actor).decode


class SignalContent(msgspec.Struct, frozen=True, gc=False):
    """An event that must be applied once: its id and its content."""

    instance: bytes
    key: str
    event: str
    payload: bytes | None
    node: str | None


class KeptEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that arrived before its wait."""

    id: bytes
    event: str
    payload: bytes | None
    actor: Actor
    token: str = ""  # of the wait it is tried on
    kept_at: int = 0
    expires_at: int = 0
    from_inbox: bool = True
    node: str | None = None  # the step it is meant for, where the sender named one


async def take_early_events(
    session: Session, instance: bytes, org: str, needs: Sequence[EarlyEvents], nodes: Mapping[str, str]
) -> list[KeptEvent]:
    """Read matching events for waits that just opened, oldest first; `nodes` has the node of each wait's token.

    Keyed events are read under the lock that their senders take too.
    """
    keyed = [n for n in needs if n.key is not None]
    plain = [n for n in needs if n.key is None]
    found: list[KeptEvent] = []
    if keyed:
        await lock_event_keys(session, sorted({(org, n.event, n.key or "") for n in keyed}))
        wanted = [
            (instance, n.token, org, n.event, n.key or "", bucket_of(org, n.key or ""), nodes[n.token], instance[15])
            for n in keyed
        ]
        [result] = await session.run([SQL.read_key_events.rows(wanted, MOST_TRIED)])
        for _, token, id, event, payload, actor, sent_at in rows(result):
            found.append(_kept(id, event, payload, actor, token, read_int(sent_at), from_inbox=False))
    if plain:
        [result] = await session.run(
            [SQL.take_kept_events.rows(sorted({(instance, instance[15], n.event) for n in plain}), MOST_TRIED)]
        )
        for _, id, event, payload, actor, node, kept_at, expires_at in rows(result):
            found.append(_kept(id, event, payload, actor, b"", read_int(kept_at), read_int(expires_at), node))
    return found


async def mark_taken(session: Session, instance: bytes, org: str, event: bytes, node: str) -> None:
    """Mark an event as taken at a node, in the commit that takes it: no later visit of the node takes it again."""
    await session.run([SQL.mark_events.rows([(instance, instance[15], f"{UUID(bytes=event)}:{node}", org)])])


async def count_ancestors(session: Session, instance: bytes, most: int) -> int:
    """Count the ancestors of an instance, up to `most`, in the open transaction."""
    [result] = await session.run([SQL.count_ancestors.one(instance, instance[15], most)])
    return read_int(rows(result)[0][0])


async def lock_event_keys(session: Session, keys: Sequence[tuple[str, str, str | None]]) -> None:
    """Lock event keys in the order given, against their senders; a key this transaction holds costs nothing."""
    if keys:
        batch = [(org, event, key or "", bucket_of(org, key or "")) for org, event, key in keys]
        await session.run([SQL.lock_event_keys.rows(batch)])


def _kept(
    id: bytes, event: bytes, payload: bytes | None, actor: bytes | None, token: bytes, kept_at: int, until: int = 0,
    node: bytes | None = None, *, from_inbox: bool = True,
) -> KeptEvent:  # fmt: skip
    who = SYSTEM if actor is None else _decode_actor(actor[1:])
    body = None if payload is None else payload[1:]
    meant = None if node is None else node.decode()
    return KeptEvent(
        id=id,
        event=event.decode(),
        payload=body,
        actor=who,
        token=token.decode(),
        kept_at=kept_at,
        expires_at=until,
        from_inbox=from_inbox,
        node=meant,
    )


async def take_idle_work(session: Session, instance: bytes, paths: Iterable[str]) -> frozenset[str]:
    """Delete the dispatched work of these paths that no worker has begun, and return its paths."""
    [result] = await session.run([SQL.take_idle_work.rows([(instance, instance[15], path) for path in sorted(paths)])])
    return frozenset(path.decode() for _, path in rows(result))


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Hashes of the content received earlier under a signal's id (None: nothing) and of the content of now."""

    earlier: bytes | None
    content: bytes
    answer: bytes | None = None  # that the earlier signal got


def find_receipts(wanted: Sequence[SignalContent]) -> Query:
    """Look up signals that carry an id of their own."""
    return SQL.find_outbox_receipts.rows(
        [(s.instance, s.instance[15], s.key, s.event, s.payload, s.node) for s in wanted]
    )


def found_receipts(wanted: Sequence[SignalContent], result: PGresult) -> dict[SignalContent, Receipt]:
    """Map receipts by content and not by id: one id may come with two bodies in one batch."""
    found = [Receipt(earlier, content, answer and answer[1:]) for earlier, content, answer in rows(result)]
    return dict(zip(wanted, found, strict=True))
