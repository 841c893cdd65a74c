"""What a decision may ask for in the middle of a commit: early events, idle work, receipts of signals."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.decision import EarlyEvents
from holdfast.core.ids import bucket_of
from holdfast.core.signals import SYSTEM, Actor
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL

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
    token: str
    from_inbox: bool


async def take_early_events(
    session: Session, instance: bytes, org: str, needs: Sequence[EarlyEvents]
) -> list[KeptEvent]:
    """Matching events for waits that just opened. Keyed ones are read under the lock that their senders take too."""
    keyed = [n for n in needs if n.key is not None]
    plain = [n for n in needs if n.key is None]
    found: list[KeptEvent] = []
    if keyed:
        await lock_event_keys(session, sorted({(org, n.event, n.key or "") for n in keyed}))
        wanted = [(instance, n.token, org, n.event, n.key or "", bucket_of(org, n.key or "")) for n in keyed]
        [result] = await session.run([SQL.read_key_events.rows(wanted)])
        for _, token, id, event, payload, actor in rows(result):
            found.append(_kept(id, event, payload, actor, token, False))
    if plain:
        [result] = await session.run(
            [SQL.take_kept_events.rows([(instance, instance[15], n.event, n.token) for n in plain])]
        )
        for _, id, event, payload, actor, token in rows(result):
            found.append(_kept(id, event, payload, actor, token, True))
    return found


async def lock_event_keys(session: Session, keys: Sequence[tuple[str, str, str | None]]) -> None:
    """Serialise with the senders of keyed events, in the order given; a key locked before costs nothing."""
    if keys:
        batch = [(org, event, key or "", bucket_of(org, key or "")) for org, event, key in keys]
        await session.run([SQL.lock_event_keys.rows(batch)])


def _kept(
    id: bytes, event: bytes, payload: bytes | None, actor: bytes | None, token: bytes, from_inbox: bool
) -> KeptEvent:
    who = SYSTEM if actor is None else _decode_actor(actor[1:])
    return KeptEvent(id, event.decode(), None if payload is None else payload[1:], who, token.decode(), from_inbox)


async def take_idle_work(session: Session, instance: bytes) -> frozenset[str]:
    """Paths of the instance whose dispatched work nobody had claimed; the rows are gone with this transaction."""
    [result] = await session.run([SQL.take_idle_work.rows([(instance, instance[15])])])
    return frozenset(path.decode() for _, path in rows(result))


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What was received under a signal's id before (None: nothing), and what comes now, as hashes of the content."""

    earlier: bytes | None
    content: bytes


async def find_receipts(session: Session, wanted: Sequence[SignalContent]) -> dict[tuple[bytes, str], Receipt]:
    """Look up signals that carry an id of their own, by (instance, id)."""
    if not wanted:
        return {}
    batch = [(s.instance, s.instance[15], s.key, s.event, s.payload, s.node) for s in wanted]
    [result] = await session.run([SQL.find_outbox_receipts.rows(batch)])
    return {(instance, key.decode()): Receipt(earlier, content) for instance, key, earlier, content in rows(result)}
