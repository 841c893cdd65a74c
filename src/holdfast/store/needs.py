"""What a decision may ask for in the middle of a commit: early events, idle work, receipts of signals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from psycopg.pq.abc import PGresult

from holdfast.core.decision import EarlyEvents
from holdfast.core.ids import bucket_of
from holdfast.core.signals import SYSTEM, Actor
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int

MOST_TRIED: Final = 32  # early events that are tried on one wait, should the first not fit its edges

_decode_actor = msgspec.json.Decoder(Actor).decode


class SignalContent(msgspec.Struct, frozen=True, gc=False):
    """An event that must be applied once: its id and what it says."""

    instance: bytes
    key: str
    event: str
    payload: bytes | None
    node: str | None


class KeptEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that was there before its wait."""

    id: bytes
    event: str
    payload: bytes | None
    actor: Actor
    token: str = ""  # of the wait it is tried on
    kept_at: int = 0
    expires_at: int = 0
    from_inbox: bool = True


async def take_early_events(
    session: Session, instance: bytes, org: str, needs: Sequence[EarlyEvents], nodes: Mapping[str, str]
) -> list[KeptEvent]:
    """Matching events for waits that just opened, at the nodes their tokens stand on, oldest first.

    Keyed ones are read under the lock that their senders take too.
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
        for _, token, id, event, payload, actor in rows(result):
            found.append(_kept(id, event, payload, actor, token))
    if plain:
        [result] = await session.run(
            [SQL.take_kept_events.rows([(instance, instance[15], n.event, n.token) for n in plain], MOST_TRIED)]
        )
        for _, id, event, payload, actor, token, kept_at, expires_at in rows(result):
            found.append(_kept(id, event, payload, actor, token, read_int(kept_at), read_int(expires_at)))
    return found


async def lock_event_keys(session: Session, keys: Sequence[tuple[str, str, str | None]]) -> None:
    """Serialise with the senders of keyed events, in the order given; a key locked before costs nothing."""
    if keys:
        batch = [(org, event, key or "", bucket_of(org, key or "")) for org, event, key in keys]
        await session.run([SQL.lock_event_keys.rows(batch)])


def _kept(
    id: bytes, event: bytes, payload: bytes | None, actor: bytes | None, token: bytes, kept_at: int = 0, until: int = 0
) -> KeptEvent:
    who = SYSTEM if actor is None else _decode_actor(actor[1:])
    body = None if payload is None else payload[1:]
    return KeptEvent(id, event.decode(), body, who, token.decode(), kept_at, until, bool(kept_at))


async def take_idle_work(session: Session, instance: bytes, paths: Iterable[str]) -> frozenset[str]:
    """Those of the paths whose dispatched work nobody has begun; the rows are gone with this transaction."""
    [result] = await session.run([SQL.take_idle_work.rows([(instance, instance[15], path) for path in sorted(paths)])])
    return frozenset(path.decode() for _, path in rows(result))


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What was received under a signal's id before (None: nothing), and what comes now, as hashes of the content."""

    earlier: bytes | None
    content: bytes


def find_receipts(wanted: Sequence[SignalContent]) -> Query:
    """Look up signals that carry an id of their own."""
    return SQL.find_outbox_receipts.rows(
        [(s.instance, s.instance[15], s.key, s.event, s.payload, s.node) for s in wanted]
    )


def found_receipts(wanted: Sequence[SignalContent], result: PGresult) -> dict[SignalContent, Receipt]:
    """By content: one id may come with two bodies in one batch."""
    found = [Receipt(earlier, content) for earlier, content in rows(result)]
    return dict(zip(wanted, found, strict=True))
