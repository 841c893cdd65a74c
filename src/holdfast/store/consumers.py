"""Consumers in the database: register, beat, remove, see how far each is behind; give past facts to new ones.

**The past of a consumer.** A fact has a delivery for every consumer that its commit sees. A consumer that begins in
the past gets the older ones page by page. One that registers while a commit is under way must neither miss its facts
nor get them twice, and never newer facts of an instance before older ones. The rule:

1. A new consumer is *held*: `filled_to` is not null. Commits write its deliveries, but none of them is due.
2. After its registration has committed, the transactions that write deliveries at that moment are noted. Only these may
   not have seen the consumer. When the last of them has ended, everything it has to be given is there to be read.
3. Facts are read in the order of their commits from `since` on. Deliveries are inserted where there is none.
4. The last page lets go (`filled_to` is null): commits that see this make facts due themselves. Those under way may not
   see it, so they are waited for once more.
5. Then the first open facts of each instance are made due, wherever they are not (`swept_to` is the place of that).

Any worker takes the next step of any consumer, and each step says what it was based on: done twice, it counts once. The
wait is for the engine's own short commits only, found by their lock on the table; others' transactions do not matter.
A replay goes the same way, and takes the present due times first. So does the end of a removed consumer's open facts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.ack_handles import AckAddress
from holdfast.core.model.timestamps import from_json, to_datetime, to_iso
from holdfast.store.deliveries import DeliveryKey
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

COUNTED: Final = 10_000  # open facts of a consumer; beyond that it is too many, however many
STRETCH: Final = 1_000  # facts in one step of a filling
WAYS: Final = ("here", "push", "pull")
_EARLIEST: Final = -(2**63)  # PostgreSQL's -infinity


class NewConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A registration. None in a filter: everything."""

    environment: str
    name: str
    way: str
    definitions: tuple[str, ...] | None = None
    states: tuple[str, ...] | None = None
    events: tuple[str, ...] | None = None
    hooks: tuple[str, ...] | None = None
    takes_transitions: bool = True
    takes_hooks: bool = True
    critical: bool = True
    ttl: float = 30.0
    max_attempts: int = 10
    in_flight: int = 100
    target: bytes | None = None
    owner: str | None = None
    since: int | None = None  # None: from now on


class KnownConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer as far as a delivery needs it."""

    id: bytes
    org: str
    environment: str
    name: str
    way: str
    max_attempts: int
    in_flight: int
    ttl: float
    is_removed: bool
    is_held: bool  # it is being given its past, or what was committed meanwhile
    target: dict[str, Any] | None
    owner: str | None


class PushConsumer(msgspec.Struct, frozen=True):
    id: bytes
    org: str
    environment: str
    name: str
    in_flight: int
    target: dict[str, Any]
    probe_in: float | None  # seconds until it is probed; None: it was reached last


class ConsumerState(msgspec.Struct, frozen=True):
    """One consumer as a user sees it, with how far it is behind."""

    id: str
    environment: str
    name: str
    way: str
    definitions: list[str] | None
    states: list[str] | None
    events: list[str] | None
    hooks: list[str] | None
    takes_transitions: bool
    takes_hooks: bool
    critical: bool
    ttl: float
    max_attempts: int
    in_flight: int
    target: dict[str, Any] | None
    owner: str | None
    since: datetime
    filling: bool
    registered_at: datetime
    beat_at: datetime
    down_since: datetime | None
    open: int  # facts; `COUNTED` + 1 stands for more
    behind: float | None  # seconds since the oldest open one was committed

    @property
    def alive(self) -> bool:
        return self.down_since is None


class Behind(msgspec.Struct, frozen=True):
    """Lag of one consumer."""

    org: str
    environment: str
    name: str
    open: int
    seconds: float


class Filling(msgspec.Struct, frozen=True):
    """A consumer with work left on its past, and the two places as they were read."""

    id: bytes
    since: int
    filled_to: bytes | None
    swept_to: bytes | None
    is_removed: bool


async def register(session: Session, org: str, new: NewConsumer, *, of_any: bool = True) -> KnownConsumer:
    """Store a registration. `of_any`: also over one of another owner, which otherwise stays as it is."""
    filters = [new.definitions, new.states, new.events, new.hooks]
    insert = SQL.register_consumer.arrays(
        [list(f or ()) for f in filters], org, new.environment, new.name, new.way, *(f is not None for f in filters),
        new.takes_transitions, new.takes_hooks, new.critical, new.ttl, new.max_attempts, new.in_flight, new.target,
        new.owner, new.since, of_any,
    )  # fmt: skip
    await session.once(PIN, insert)
    [found] = await find(session, org, [(new.environment, new.name)])
    assert found is not None
    return found


async def find(session: Session, org: str, names: Sequence[tuple[str, str]]) -> list[KnownConsumer | None]:
    """Consumers by environment and name, in the order given."""
    if not names:
        return []
    batch = [(org, environment, name) for environment, name in names]
    results = await session.once(PIN, SQL.find_consumers.rows(batch))
    found: list[KnownConsumer | None] = [None] * len(names)
    for number, id, way, most, in_flight, ttl, removed, held, target, owner in rows(results[1]):
        place = read_int(number) - 1
        found[place] = KnownConsumer(
            id=id, org=org, environment=names[place][0], name=names[place][1], way=way.decode(),
            max_attempts=read_int(most), in_flight=read_int(in_flight), ttl=_real(ttl), is_removed=removed == b"\1",
            is_held=held == b"\1", target=_json(target), owner=None if owner is None else owner.decode(),
        )  # fmt: skip
    return found


async def find_taker(
    session: Session, org: str, environment: str, name: str, fact: AckAddress
) -> tuple[bytes, bool] | None:
    """Find a consumer by its name, and tell whether it was given this fact; one that was removed does not count."""
    query = SQL.find_taker.one(org, environment, name, fact.instance, fact.instance[15], fact.at, fact.fact)
    results = await session.once(PIN, query)
    return next(((id, given == b"\1") for id, given in rows(results[1])), None)


async def beat(session: Session, consumers: Iterable[bytes]) -> None:
    batch = [(id, id[15]) for id in sorted(consumers)]
    if batch:
        await session.once(PIN, SQL.beat_consumers.rows(batch))


async def remove(session: Session, org: str, environment: str, name: str, by: str | None) -> bool:
    """Remove a consumer; False where there was none. Workers end its open deliveries."""
    results = await session.once(PIN, SQL.remove_consumer.one(org, environment, name, by))
    return results[1].ntuples > 0


async def list_push(session: Session) -> list[PushConsumer]:
    results = await session.once(PIN, SQL.list_push_consumers.one())
    return [
        PushConsumer(
            id, org.decode(), environment.decode(), name.decode(), read_int(in_flight), _json(target) or {},
            None if probe is None else read_int(probe) / 1_000_000,
        )
        for id, org, environment, name, in_flight, target, probe in rows(results[1])
    ]  # fmt: skip


async def begin_probe(session: Session, consumer: bytes, recheck: int) -> bool:
    """Take the turn to probe a consumer that is down; one worker has it at a time."""
    results = await session.once(PIN, SQL.begin_probe.one(consumer, consumer[15], recheck))
    return results[1].ntuples > 0


async def note_reach(session: Session, consumer: bytes, *, reached: bool, recheck: int) -> None:
    await session.once(PIN, SQL.note_reach.one(consumer, consumer[15], reached, recheck))


async def list_consumers(
    session: Session,
    org: str,
    environment: str | None,
    after: tuple[str, str] | None,
    limit: int,
    name: str | None = None,
    owner: str | None = None,
) -> list[ConsumerState]:
    start = "" if after is None else "/".join(after)
    query = SQL.list_consumers.one(org, environment, start, COUNTED + 1, limit, name, owner)
    results = await session.once(SQL.use_tenant.one(org), query)
    return [_state(row) for row in rows(results[1])]


async def read_consumer(session: Session, org: str, environment: str, name: str) -> ConsumerState | None:
    """One consumer with its lag."""
    found = await list_consumers(session, org, environment, None, 1, name)
    return found[0] if found else None


async def list_behind(session: Session, most: int) -> list[Behind]:
    results = await session.once(PIN, SQL.list_behind.one(COUNTED + 1, most))
    return [
        Behind(org.decode(), environment.decode(), name.decode(), read_int(count), _seconds(age) or 0.0)
        for org, environment, name, count, age in rows(results[1])
    ]


# --- the past ------------------------------------------------------------------------------------------------------


class _Place(msgspec.Struct, omit_defaults=True):
    """Progress of a filling or a sweep."""

    phase: str  # wait | clear | fill | arm | leave
    then: str | None = None
    writers: list[str] | None = None
    again: bool = False
    at: str | None = None
    instance: str | None = None
    seq: int = -1
    ordinal: int = -1


_place = msgspec.json.Decoder(_Place).decode


async def list_filling(session: Session, most: int = 100) -> list[Filling]:
    results = await session.once(PIN, SQL.list_filling.one(most))
    return [
        Filling(id, read_int(since), _raw(filled), _raw(swept), removed == b"\1")
        for id, since, filled, swept, removed in rows(results[1])
    ]


async def replay(session: Session, consumer: bytes, since: int, filling: Filling | None) -> bool:
    """Give a consumer facts again from a moment on; False while it is still given others."""
    if filling is not None:
        return False
    place = _Place("wait", "clear", again=True, at=to_iso(since))
    return await _save(session, Filling(consumer, since, None, None, False), place, None)


async def step(session: Session, filling: Filling, page: int = STRETCH) -> tuple[bool, list[DeliveryKey]]:
    """Take one step; whether it led anywhere, and gates of a removed consumer that their instances have to close."""
    if filling.filled_to is not None:
        place = _place(filling.filled_to)
        if place.phase == "wait":
            then = place.then or "fill"
            return await _wait(session, filling, place, then, holds=True), []
        if place.phase == "clear":
            return await _clear(session, filling, place, page), []
        return await _fill(session, filling, place, page), []
    if filling.swept_to is not None:
        place = _place(filling.swept_to)
        if place.phase == "wait":
            return await _wait(session, filling, place, place.then or "arm", holds=False), []
        return await _sweep(session, filling, place, page)
    return False, []


async def _wait(session: Session, filling: Filling, place: _Place, then: str, *, holds: bool) -> bool:
    """Wait for transactions that began before: True when their end has been seen, or begun to be."""
    results = await session.once(PIN, SQL.list_writers.one())
    present: list[str] = msgspec.json.decode(results[1].get_value(0, 0)[1:])  # type: ignore[index]
    if place.writers is None:
        left = present
    else:
        left = [writer for writer in place.writers if writer in present]
    if left and left == place.writers:
        return False
    following = msgspec.structs.replace(place, writers=left) if left else _Place(then, again=place.again, at=place.at)
    return await (_save(session, filling, following, None) if holds else _save(session, filling, None, following))


async def _clear(session: Session, filling: Filling, place: _Place, page: int) -> bool:
    results = await session.once(PIN, SQL.disarm_deliveries.one(filling.id, page))
    if results[1].ntuples < page:
        await _save(session, filling, _Place("fill", again=place.again, at=place.at), None)
    return True


async def _fill(session: Session, filling: Filling, place: _Place, page: int) -> bool:
    at = from_json(place.at)
    instance = bytes(16) if place.instance is None else UUID(place.instance).bytes
    fill = SQL.fill_deliveries.one(
        filling.id, filling.id[15], filling.filled_to, filling.since if at is None else at, instance, place.seq,
        place.ordinal, page, place.again,
    )  # fmt: skip
    results = await session.once(PIN, fill)
    return results[1].ntuples > 0


async def _sweep(session: Session, filling: Filling, place: _Place, page: int) -> tuple[bool, list[DeliveryKey]]:
    at = from_json(place.at)
    statement = SQL.abandon_deliveries if place.phase == "leave" else SQL.arm_deliveries
    results = await session.once(PIN, statement.one(filling.id, _EARLIEST if at is None else at, page))
    found = rows(results[1])
    upto, seen = found[0][0], read_int(found[0][1])
    gates = [
        DeliveryKey(AckAddress(row[3], read_int(row[4]), row[5]), filling.id)
        for row in found
        if place.phase == "leave" and row[3] is not None
    ]
    following = None if upto is None or seen < page else _Place(place.phase, at=to_iso(read_int(upto)))
    if gates:
        return True, gates  # the place stays until they are closed
    return await _save(session, filling, None, following), []


async def _save(session: Session, filling: Filling, filled: _Place | None, swept: _Place | None) -> bool:
    places = [None if place is None else msgspec.json.encode(place) for place in (filled, swept)]
    save = SQL.save_filling.one(filling.id, filling.id[15], filling.filled_to, filling.swept_to, *places)
    results = await session.once(PIN, save)
    return results[1].ntuples > 0


def _state(row: list[Any]) -> ConsumerState:
    (id, environment, name, way, definitions, states, events, hooks, transitions, takes_hooks, critical, ttl, most,
     in_flight, target, owner, since, filling, registered, beat_at, down, count, age) = row  # fmt: skip
    return ConsumerState(
        id=str(UUID(bytes=id)),
        environment=environment.decode(),
        name=name.decode(),
        way=way.decode(),
        definitions=_names(definitions),
        states=_names(states),
        events=_names(events),
        hooks=_names(hooks),
        takes_transitions=transitions == b"\1",
        takes_hooks=takes_hooks == b"\1",
        critical=critical == b"\1",
        ttl=_real(ttl),
        max_attempts=read_int(most),
        in_flight=read_int(in_flight),
        target=_json(target),
        owner=None if owner is None else owner.decode(),
        since=to_datetime(read_int(since)),
        filling=filling == b"\1",
        registered_at=to_datetime(read_int(registered)),
        beat_at=to_datetime(read_int(beat_at)),
        down_since=None if down is None else to_datetime(read_int(down)),
        open=read_int(count),
        behind=_seconds(age),
    )


def _names(data: bytes | None) -> list[str] | None:
    return None if data is None else msgspec.json.decode(data[1:])


def _json(data: bytes | None) -> Any:
    return None if data is None else msgspec.json.decode(data[1:])


def _raw(data: bytes | None) -> bytes | None:
    return None if data is None else data[1:]


def _seconds(data: bytes | None) -> float | None:
    return None if data is None else read_int(data) / 1_000_000


def _real(data: bytes) -> float:
    return struct.unpack("!f", data)[0]
