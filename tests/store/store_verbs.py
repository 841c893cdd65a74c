"""Everything that locks, cut into the flushes between which somebody else can come.

A verb is an async generator: what happens up to a `yield` is one flush, and the transaction stays open across it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from store_batches import ME, batch, decision, dispatch, end, instance, later, new, new_id, release, visit

from holdfast.core.model.decision import KeyWait, Opened, Timer
from holdfast.core.model.ids import bucket_of, timer_id
from holdfast.core.model.state import Instance
from holdfast.store.commit.batch import Batch, writes
from holdfast.store.commit.locks import CLOCK
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

KEYS = ("shipment-1", "shipment-2")
STARTS = ("start-1", "start-2", "start-3")
BRANCH = "0/1.0"
PARKED, UNSERVED = "0/1.1", "0/1.2"  # work that waits for a dead letter to be answered, and for a handler
_SIGNAL_ID = UUID("77777777-7777-4777-8777-777777777777")


class World(NamedTuple):
    """A few instances that everybody is after: work leased to us, idle work, a queued signal and a due timer each; and
    what people and the upkeep are after: dead letters of every kind, a task, early events that nobody waited for."""

    now: int
    members: list[Instance]
    steps: list[Opened]
    claimant: bytes  # a worker with a lease, as a claim demands

    @property
    def entries(self) -> list[tuple[Instance, Opened]]:
        return list(zip(self.members, self.steps, strict=True))


class Actor:
    """One of the two that meet: a session for the engine's statements and a plain connection for everybody else's."""

    def __init__(self, name: str, session: Session, conn: psycopg.AsyncConnection[Any]) -> None:
        self.name = name
        self.session = session
        self.conn = conn

    @classmethod
    async def enter(cls, name: str, dsn: str) -> Actor:
        named = make_conninfo(dsn, application_name=name)
        return cls(name, await Session.open(named), await psycopg.AsyncConnection.connect(named))

    async def leave(self) -> None:
        await self.session.close()
        await self.conn.close()

    async def give_up(self) -> None:
        await self.session.run([ROLLBACK])
        await self.conn.rollback()


Verb = Callable[[Actor, World], AsyncIterator[None]]


LETTERS = ("signal", "work", "effect")

# The letters of an instance differ in one byte of their ids, so everybody can name them.
_MORE_ROWS = """
    with w as (
        update holdfast.work set queue = 'dead letter' where instance_id = any(%(ids)s) and path = %(parked)s
    ), l as (
        insert into holdfast.dead_letters (id, bucket, org_id, instance_id, flow, source, envelope, reason, created_at)
        select overlay(i.id::text placing s.mark from 1 for 2)::uuid, i.bucket, i.org_id, i.id, i.flow, s.source,
            jsonb_build_object('id', gen_random_uuid(), 'kind', 'event', 'payload', '{}'::jsonb,
                'path', %(parked)s::text, 'step', k.step_id, 'created_at', i.created_at), 'TEST', i.created_at
        from holdfast.instances i
        join holdfast.work k on k.instance_id = i.id and k.path = %(parked)s
        cross join (values ('a0', 'signal'), ('a1', 'work'), ('a2', 'effect')) as s(mark, source)
        where i.id = any(%(ids)s)
    ), e as (
        insert into holdfast.effects (instance_id, bucket, created_at, id, org_id, step_id, step_created_at, token,
            effect_type, payload, key, awaited, status, attempts, max_attempts, next_attempt_at, completed_at)
        select i.id, i.bucket, i.created_at, overlay(i.id::text placing 'a2' from 1 for 2)::uuid, i.org_id, i.id,
            i.created_at, '0@1', 'webhook', '{}', i.id::text, false, 'dead_letter', 1, 1, i.created_at, i.created_at
        from holdfast.instances i where i.id = any(%(ids)s)
    ), t as (
        insert into holdfast.tasks (id, bucket, org_id, instance_id, step_id, step_created_at, flow, node, token,
            status, roles, rank, due_at, version, created_at, updated_at)
        select i.id, i.bucket, i.org_id, i.id, i.id, i.created_at, 'order', 'ask', '0@1', 'open', '[]', 50, 'infinity',
            1, i.created_at, i.created_at
        from holdfast.instances i where i.id = any(%(ids)s)
    ), n as (
        insert into holdfast.inbox (instance_id, id, bucket, org_id, event, created_at, expires_at)
        select i.id, gen_random_uuid(), i.bucket, i.org_id, 'early', i.created_at, '-infinity'
        from holdfast.instances i where i.id = any(%(ids)s)
    ), c as (
        insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)
        select i.id, i.bucket, i.org_id, 60, '-infinity' from holdfast.instances i where i.id = any(%(ids)s)
    ), k as (
        insert into holdfast.event_keys (org_id, event, key, bucket)
        select 'acme', 'paid', x.key, x.bucket from unnest(%(keys)s::text[], %(buckets)s::int[]) as x(key, bucket)
        on conflict do nothing
    )
    insert into holdfast.key_events (org_id, event, key, id, bucket, created_at, expires_at)
    select 'acme', 'paid', x.key, gen_random_uuid(), x.bucket, now(), '-infinity'
    from unnest(%(keys)s::text[], %(buckets)s::int[]) as x(key, bucket)
"""


def letter_id(one: Instance, source: str) -> bytes:
    return bytes([0xA0 + LETTERS.index(source)]) + one.id[1:]


async def build(actor: Actor) -> World:
    session = actor.session
    [answer] = await session.once(CLOCK)
    now = read_int(answer.get_value(0, 0) or b"")
    members = sorted((instance(new_id(n)) for n in range(3)), key=lambda i: i.id)
    steps = [visit(one) for one in members]
    entries: list[Entry] = []
    for one, step in zip(members, steps, strict=True):
        branch, parked, unserved = (visit(one, path=path) for path in (BRANCH, PARKED, UNSERVED))
        entries.append(
            Entry(
                one,
                [
                    decision(
                        one,
                        opened=[step, branch, parked, unserved],
                        dispatches=[
                            *(dispatch(visited, now) for visited in (step, branch, parked)),
                            dispatch(unserved, now, queue="nobody"),
                        ],
                        timers=[Timer(timer_id(one.id, "w"), "0", "w", "timer", now - 1)],
                    )
                ],
                new(),
            )
        )
    leased = batch(now, *entries, leases=lambda d: d.path == "0")
    signals = SQL.insert_signals.rows([(i.id, i.id[15], i.id, i.org, "event", b"{}", None) for i in members], now)
    claimant = os.urandom(16)
    alive = SQL.insert_worker.arrays([["main"]], claimant, "here", 1, "1", 600.0, b"{}")
    await session.once(PIN, *writes(leased), signals, alive)
    await actor.conn.execute(
        _MORE_ROWS,
        {
            "ids": [UUID(bytes=one.id) for one in members],
            "parked": PARKED,
            "keys": list(KEYS),
            "buckets": [bucket_of("acme", key) for key in KEYS],
        },
    )
    await actor.conn.commit()
    return World(now, members, steps, claimant)


# Lanes


async def _locked(actor: Actor, world: World) -> dict[bytes, int]:
    """The first flush of a commit: which instances it got, and their versions."""
    known = SQL.lock_instances.rows([(i.id, i.id[15], -1) for i in world.members])
    answers = await actor.session.run([BEGIN, PIN, known, SQL.claim_instances.one(10), CLOCK])
    return {row[0]: read_int(row[1]) for row in (*rows(answers[2]), *rows(answers[3]))}


def _advance(world: World, got: dict[bytes, int], **changes: Any) -> Batch:
    """Close the step of each instance, end its work, set its timer again."""
    entries: list[Entry] = []
    for one, step in world.entries:
        if one.id in got:
            before = msgspec.structs.replace(one, version=got[one.id])
            timer = Timer(timer_id(one.id, "w"), "0", "w", "timer", world.now)
            closed = [end(step, world.now, before.version + 1)]
            moved = decision(later(before), closed=closed, released=[release()], timers=[timer])
            entries.append(Entry(before, [moved]))
    return batch(world.now, *entries, **changes)


async def commit_with_locks(actor: Actor, world: World) -> AsyncIterator[None]:
    got = await _locked(actor, world)
    yield
    answers = await actor.session.run([SQL.read_signals.rows([(i, i[15]) for i in got], 32)]) if got else []
    consumed = [(row[0], row[1]) for answer in answers for row in rows(answer)]
    yield
    await actor.session.run(writes(_advance(world, got, consumed=consumed)))
    yield
    await actor.session.run([COMMIT])


async def commit_in_one_flush(actor: Actor, world: World) -> AsyncIterator[None]:
    first, *rest = writes(_advance(world, {i.id: 1 for i in world.members}))
    await actor.session.run([BEGIN, SQL.pin_impatiently.one(), first])
    yield
    await actor.session.run(rest)
    yield
    await actor.session.run([COMMIT])


async def commit_a_cancel(actor: Actor, world: World) -> AsyncIterator[None]:
    got = await _locked(actor, world)
    yield
    for id in got:
        await actor.session.run([SQL.take_idle_work.rows([(id, id[15], path) for path in ("0", BRANCH)])])
    yield
    entries: list[Entry] = []
    for one in reversed(world.members):
        if one.id in got:
            before = msgspec.structs.replace(one, version=got[one.id])
            gone = [release(fence=0), release(BRANCH, 0)]
            over = decision(later(before), released=gone, timers_ended=[timer_id(one.id, "w")])
            entries.append(Entry(before, [over]))
    await actor.session.run(writes(batch(world.now, *entries)))
    yield
    await actor.session.run([COMMIT])


async def commit_keyed_waits(actor: Actor, world: World) -> AsyncIterator[None]:
    got = await _locked(actor, world)
    yield
    await actor.session.run([SQL.lock_event_keys.rows([("acme", "paid", k, bucket_of("acme", k)) for k in KEYS])])
    yield
    entries: list[Entry] = []
    for one, step in world.entries:
        if one.id in got:
            before = msgspec.structs.replace(one, version=got[one.id])
            waits = [KeyWait("paid", key, "0@1", step.id) for key in KEYS]
            entries.append(Entry(before, [decision(later(before), key_waits=waits)]))
    await actor.session.run(writes(batch(world.now, *entries)))
    yield
    await actor.session.run([COMMIT])


# Pump and recovery


async def claim_work(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.session.run([BEGIN, PIN, SQL.claim_work.arrays([["main"]], 10, world.claimant)])
    yield
    await actor.session.run([COMMIT])


async def reclaim_work(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.session.run([BEGIN, PIN, SQL.reclaim_work.one(10)])
    yield
    await actor.session.run([COMMIT])


async def fire_timers(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.session.run([BEGIN, PIN, SQL.fire_timers.one(10)])
    yield
    await actor.session.run([COMMIT])


async def check_stale(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.session.run([BEGIN, PIN, SQL.check_stale.one(10)])
    yield
    await actor.session.run([COMMIT])


async def return_claims(actor: Actor, world: World) -> AsyncIterator[None]:
    claims = [(i.id, i.id[15], "0", 1) for i in reversed(world.members)]
    await actor.session.run([BEGIN, PIN, SQL.return_claims.rows(claims[:2], ME)])
    yield
    await actor.session.run([COMMIT])


async def park_work(actor: Actor, world: World) -> AsyncIterator[None]:
    claims = [(i.id, i.id[15], "0", 1, 60.0) for i in reversed(world.members)]
    await actor.session.run([BEGIN, PIN, SQL.park_work.rows(claims[:2], ME)])
    yield
    await actor.session.run([COMMIT])


async def take_turns(actor: Actor, world: World) -> AsyncIterator[None]:
    asked = [("org", key, 1.0, 1.0, 1) for key in ("b:b", "a:a")]
    await actor.session.run([BEGIN, PIN, SQL.take_turns.rows(asked, 30.0)])
    yield
    await actor.session.run([COMMIT])


async def note_missing_handlers(actor: Actor, world: World) -> AsyncIterator[None]:
    asked = SQL.note_missing_handlers.arrays([["nobody"]], 10, 1.0, 0.0, 60.0)
    await actor.session.run([BEGIN, PIN, asked])
    yield
    await actor.session.run([COMMIT])


async def bury_work(actor: Actor, world: World) -> AsyncIterator[None]:
    one = world.members[1]
    letter = (one.id, one.id[15], "0", 1, "TEST", b"{}", None)
    await actor.session.run([BEGIN, PIN, SQL.bury_work.rows([letter], ME)])
    yield
    await actor.session.run([COMMIT])


# The upkeep


async def expire_inbox(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.conn.execute("select holdfast.expire_inbox(10)")
    yield
    await actor.conn.commit()


async def expire_key_events(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.conn.execute("select holdfast.expire_key_events(10)")
    yield
    await actor.conn.commit()


async def delete_old_instances(actor: Actor, world: World) -> AsyncIterator[None]:
    """As retention does it: what nobody holds, in the order of all."""
    found = await actor.conn.execute("select id from holdfast.instances order by id for update skip locked")
    ids = [row[0] for row in await found.fetchall()]
    yield
    for table in ("work", "signals", "timers"):
        await actor.conn.execute(f"delete from holdfast.{table} where instance_id = any(%s)", [ids])
    yield
    await actor.conn.commit()


def _about_signals(world: World, *rest: Any) -> list[tuple[Any, ...]]:
    return [(i.id, i.id[15], i.id, *rest) for i in world.members]


async def count_attempts(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.session.run([BEGIN, PIN, SQL.count_attempts.rows(_about_signals(world, "a defect", 1))])
    yield
    await actor.session.run([COMMIT])


async def bury_signals(actor: Actor, world: World) -> AsyncIterator[None]:
    letters = _about_signals(world, "DEFECT", b"{}", 0)
    await actor.session.run([BEGIN, PIN, SQL.bury_signals.rows(letters, ME)])
    yield
    await actor.session.run([COMMIT])


# Callers


async def start_with_keys(actor: Actor, world: World) -> AsyncIterator[None]:
    ids = [(new_id(bucket_of("acme", key)), key) for key in STARTS]
    batch_of = [
        (id, id[15], "acme", b"\x33" * 16, "order", 1, b"{}", key, None, None, None, None, None, None)
        for id, key in ids
    ]
    await actor.session.run([BEGIN, PIN, SQL.start_instances.rows(batch_of, None)])
    yield
    await actor.session.run([COMMIT])


async def start_in_a_transaction(actor: Actor, world: World) -> AsyncIterator[None]:
    for key in STARTS[:2]:
        await actor.conn.execute("select holdfast.start('order', '{}', %s, org => 'acme')", [key])
    yield
    await actor.conn.commit()


async def signal_in_a_transaction(actor: Actor, world: World) -> AsyncIterator[None]:
    await _signal(actor, world.members[0])
    yield
    await _signal(actor, world.members[1])
    yield
    await actor.conn.commit()


async def _signal(actor: Actor, to: Instance) -> None:
    await actor.conn.execute(
        "select holdfast.signal(%s, 'paid', %s, %s, org => 'acme')", [UUID(bytes=to.id), Jsonb({}), _SIGNAL_ID]
    )


async def signal_a_key_in_a_transaction(actor: Actor, world: World) -> AsyncIterator[None]:
    await actor.conn.execute("select holdfast.signal_key('paid', %s, org => 'acme')", [KEYS[0]])
    yield
    await actor.conn.commit()


async def cancel_in_a_transaction(actor: Actor, world: World) -> AsyncIterator[None]:
    for one in reversed(world.members):
        await actor.conn.execute("select holdfast.cancel(%s, org => 'acme')", [UUID(bytes=one.id)])
        yield
    await actor.conn.commit()


# Operators and people


def _letters(world: World, source: str) -> list[bytes]:
    """In the order of a list that somebody clicked together."""
    return [letter_id(one, source) for one in reversed(world.members)]


async def replay_signals(actor: Actor, world: World) -> AsyncIterator[None]:
    asked = SQL.replay_signals.arrays([_letters(world, "signal")], "acme", "ann", "again")
    await actor.session.run([BEGIN, PIN, asked])
    yield
    await actor.session.run([COMMIT])


async def replay_work(actor: Actor, world: World) -> AsyncIterator[None]:
    asked = SQL.replay_work.arrays([_letters(world, "work")], "acme", "ann", "again")
    await actor.session.run([BEGIN, PIN, asked])
    yield
    await actor.session.run([COMMIT])


async def replay_effects(actor: Actor, world: World) -> AsyncIterator[None]:
    dead = [(id, id[15]) for id in _letters(world, "effect")]
    await actor.session.run([BEGIN, PIN, SQL.replay_effects.rows(dead, "acme", "ann", "again")])
    yield
    await actor.session.run([COMMIT])


async def discard_letters(actor: Actor, world: World) -> AsyncIterator[None]:
    every = [id for source in LETTERS for id in _letters(world, source)]
    await actor.session.run([BEGIN, PIN, SQL.discard_letters.arrays([every], "acme", "ann", "no")])
    yield
    await actor.session.run([COMMIT])


async def change_task(actor: Actor, world: World) -> AsyncIterator[None]:
    one = world.members[1]
    asked = SQL.change_task.one(one.id, one.id[15], "acme", 1, "claimed", "ann", "claimed", "ann", None)
    await actor.session.run([BEGIN, PIN, asked])
    yield
    await actor.session.run([COMMIT])


async def migrate_an_instance(actor: Actor, world: World) -> AsyncIterator[None]:
    """As the API does what it does to one instance: it may wait for that one, holding nothing else."""
    id = UUID(bytes=world.members[1].id)
    await actor.conn.execute("set local lock_timeout = '2s'")
    await actor.conn.execute("set local holdfast.migrating = 'on'")
    await actor.conn.execute("select from holdfast.instances where id = %s for no key update", [id])
    yield
    await actor.conn.execute(
        "update holdfast.instances set flow_version = 2, version = version + 1 where id = %s", [id]
    )
    yield
    await actor.conn.commit()


VERBS: dict[str, Verb] = {
    verb.__name__: verb
    for verb in (
        commit_with_locks, commit_in_one_flush, commit_a_cancel, commit_keyed_waits, claim_work, reclaim_work,
        fire_timers, check_stale, return_claims, park_work, take_turns, delete_old_instances, start_with_keys,
        start_in_a_transaction, signal_in_a_transaction, signal_a_key_in_a_transaction, cancel_in_a_transaction,
        migrate_an_instance, note_missing_handlers, count_attempts, bury_signals, bury_work, expire_inbox,
        expire_key_events, replay_signals, replay_work, replay_effects, discard_letters, change_task,
    )
}  # fmt: skip
