"""Whoever locks, locks in one order: every pair of verbs meets here in forced interleavings, and none deadlocks.

Waiting is allowed only where it is listed: claims, recovery and timers wait for nobody, and nobody waits for a caller's
open transaction except for the very same key.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import combinations_with_replacement
from typing import Any
from uuid import UUID

import psycopg
import pytest
import schema_rows
from store_batches import ME
from store_verbs import VERBS, Actor, World, build, letter_id

from holdfast.store.pg.session import BEGIN, ROLLBACK, DatabaseError
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

Db = psycopg.Connection[Any]
PAIRS = list(combinations_with_replacement(VERBS, 2))
TABLES = ("instances", "steps", "step_receipts", "outbox_receipts", "work", "signals", "timers", "key_waits",
          "key_events", "event_keys", "events", "workers", "dead_letters", "effects", "tasks", "task_events",
          "inbox")  # fmt: skip

# What a guard may say to the later of two: read again, decide again.
RACES = {"HF001", "23505", "55P03", "HF404"}

COMMITS = {"commit_with_locks", "commit_in_one_flush", "commit_a_cancel", "commit_keyed_waits"}
INSTANCE_HOLDERS = COMMITS | {"delete_old_instances", "migrate_an_instance", "count_attempts", "bury_signals"}
WORK_HOLDERS = {"claim_work", "reclaim_work", "return_claims", "park_work", "delete_old_instances", "bury_work",
                "replay_work", "note_missing_handlers"}  # fmt: skip
SIGNAL_HOLDERS = {"count_attempts", "bury_signals", "delete_old_instances"}

# waiter → for whom it may wait. Every wait ends: by the other's commit, which waits for nothing, or by lock_timeout.
MAY_WAIT: dict[str, set[str]] = {
    # Its writes meet short transactions of the engine on work and timers, never a caller's.
    "commit_with_locks": WORK_HOLDERS | {"fire_timers"},
    "commit_a_cancel": WORK_HOLDERS | {"fire_timers"},
    # It took no locks before, and gives up after a tenth of a second.
    "commit_in_one_flush": INSTANCE_HOLDERS | WORK_HOLDERS | {"fire_timers"},
    # The sender of a keyed event and the commit that opens a wait for it take turns.
    "commit_keyed_waits": {"commit_keyed_waits", "signal_a_key_in_a_transaction", "expire_key_events"},
    "signal_a_key_in_a_transaction": {"commit_keyed_waits", "signal_a_key_in_a_transaction", "expire_key_events"},
    # The same key, the same id: whether the first one counts is known at its commit.
    "start_with_keys": {"start_with_keys", "start_in_a_transaction"},
    "start_in_a_transaction": {"start_with_keys", "start_in_a_transaction"},
    "signal_in_a_transaction": {"signal_in_a_transaction"},
    # One instance, holding nothing else.
    "migrate_an_instance": INSTANCE_HOLDERS,
    # They hold what they delete or return; the holder of the rest is in the middle of its own short transaction.
    "delete_old_instances": COMMITS | WORK_HOLDERS | SIGNAL_HOLDERS | {"fire_timers", "check_stale"},
    "return_claims": COMMITS | WORK_HOLDERS,
    "park_work": COMMITS | WORK_HOLDERS,
    # The same bucket, for one statement; it holds nothing else.
    "take_turns": {"take_turns"},
    "count_attempts": set(),
    "bury_signals": set(),
    "claim_work": set(),
    "reclaim_work": set(),
    "fire_timers": set(),
    "check_stale": set(),
    "cancel_in_a_transaction": set(),
    "note_missing_handlers": set(),
    "expire_inbox": set(),
    "expire_key_events": set(),
    # After a mishap, for one step and holding nothing else.
    "bury_work": COMMITS | WORK_HOLDERS,
    # The same letters, for one statement; after them, the work that is parked behind them.
    "replay_signals": {"replay_signals", "discard_letters"},
    "replay_work": {"replay_work", "discard_letters"} | COMMITS | WORK_HOLDERS,
    "replay_effects": {"replay_effects", "discard_letters"},
    "discard_letters": {"replay_signals", "replay_work", "replay_effects", "discard_letters"},
    # The same task, for one statement; it holds nothing else.
    "change_task": {"change_task"},
}


@pytest.fixture(scope="module")
def dsn(holdfast_server: str) -> Iterator[str]:
    with copied_database(holdfast_server) as database:
        yield database.dsn


@pytest.fixture
def monitor(dsn: str) -> Iterator[Db]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("set local session_replication_role = replica")  # the guards refuse it to everybody else
            connection.execute(f"truncate {', '.join(f'holdfast.{table}' for table in TABLES)}")
        schema_rows.insert(connection, "definitions", schema_rows.definition(version=_next_version(connection)))
        yield connection


def _next_version(db: Db) -> int:
    row = db.execute("select coalesce(max(version), 0) + 1 from holdfast.definitions").fetchone()
    assert row is not None
    return row[0]


@pytest.fixture(scope="module")
async def everybody(dsn: str) -> AsyncIterator[tuple[Actor, Actor]]:
    """The same two for all pairs: a session prepares every statement there is, and there are many pairs."""
    left, right = await Actor.enter("left", dsn), await Actor.enter("right", dsn)
    yield left, right
    await left.leave()
    await right.leave()


@pytest.fixture
async def actors(everybody: tuple[Actor, Actor]) -> AsyncIterator[tuple[Actor, Actor]]:
    yield everybody
    for actor in everybody:
        await actor.give_up()


class Run:
    """One verb under way, a flush at a time."""

    def __init__(self, name: str, actor: Actor, world: World) -> None:
        self.name = name
        self.actor = actor
        self.is_over = False
        self.error: str | None = None
        self.waited = False
        self.flushes = 0
        self._flushes = VERBS[name](actor, world)
        self._task: asyncio.Task[None] | None = None

    async def step(self, monitor: Db) -> None:
        """Go on by one flush, or find that it cannot: then it hangs on a lock until the other has ended."""
        if self._task is None and not self.is_over:
            self._task = asyncio.create_task(self._go_on())
        if self._task is None:
            return
        while not (await asyncio.wait({self._task}, timeout=0.005))[0]:
            if is_blocked(self.actor, monitor):
                self.waited = True
                return
        self._task = None

    async def end(self, monitor: Db) -> None:
        while not self.is_over:
            await self.step(monitor)

    async def all(self) -> None:
        """Without looking left or right."""
        while not self.is_over:
            await self._go_on()

    async def _go_on(self) -> None:
        self.flushes += 1
        try:
            await anext(self._flushes)
        except StopAsyncIteration:
            self.is_over = True
        except (DatabaseError, psycopg.Error) as failure:
            self.is_over = True
            self.error = failure.sqlstate
            await self.actor.give_up()


def is_blocked(actor: Actor, monitor: Db) -> bool:
    """By anybody in this database: a commit with a NOTIFY waits for one moment for those of others."""
    found = monitor.execute(
        "select 1 from pg_stat_activity a where a.application_name = %s and a.datname = current_database() and exists ("
        "select from pg_stat_activity b where b.datname = a.datname and b.pid = any(pg_blocking_pids(a.pid)))",
        [actor.name],
    )
    return found.fetchone() is not None


def schedules(first: int, second: int) -> list[str]:
    """One goes so far, then the other goes all the way; and both step by step."""
    found = [f"{'a' * n}{'b' * second}{'a' * (first - n)}" for n in range(1, first)]
    found += [f"{'b' * n}{'a' * first}{'b' * (second - n)}" for n in range(1, second)]
    return [*found, "ab" * max(first, second), "ba" * max(first, second)]


# How many flushes a verb has, its commit included; those that are not named do one thing and commit.
FLUSHES = {
    "commit_with_locks": 4, "commit_in_one_flush": 3, "commit_a_cancel": 4, "commit_keyed_waits": 4,
    "delete_old_instances": 3, "signal_in_a_transaction": 3, "cancel_in_a_transaction": 4, "migrate_an_instance": 3,
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
async def test_a_pair(one: str, other: str, actors: tuple[Actor, Actor], monitor: Db) -> None:
    for schedule in schedules(FLUSHES.get(one, 2), FLUSHES.get(other, 2)):
        world = await build(actors[0])
        runs = {"a": Run(one, actors[0], world), "b": Run(other, actors[1], world)}
        for turn in schedule:
            await runs[turn].step(monitor)
        await asyncio.gather(*(run.end(monitor) for run in runs.values()))
        for run, against in ((runs["a"], other), (runs["b"], one)):
            where = f"{run.name} against {against}, {schedule}"
            assert run.error is None or run.error in RACES, f"{run.error}: {where}"
            assert run.flushes <= FLUSHES.get(run.name, 2), f"{run.flushes} flushes: {where}"
            assert not run.waited or against in MAY_WAIT[run.name], f"waited: {where}"


def test_every_verb_says_for_whom_it_waits() -> None:
    assert set(MAY_WAIT) == set(VERBS)


# How long and behind what a wait lasts


@pytest.mark.parametrize("statement", ["drop_work", "return_claims", "park_work"])
async def test_work_is_locked_in_the_order_of_ids(
    statement: str, actors: tuple[Actor, Actor], monitor: Db, dsn: str
) -> None:
    """Whatever order the batch has: one that waits for the first row holds none of the others."""
    left, _ = actors
    world = await build(left)
    first, *others = (UUID(bytes=one.id) for one in world.members)
    backwards = [(i.id, i.id[15], "0") for i in reversed(world.members)]
    query = {
        "drop_work": SQL.drop_work.rows(backwards),
        "return_claims": SQL.return_claims.rows([(*row, 1) for row in backwards], ME),
        "park_work": SQL.park_work.rows([(*row, 1, 60.0) for row in backwards], ME),
    }[statement]
    with psycopg.connect(dsn) as holder:
        holder.execute("select from holdfast.work where instance_id = %s for update", [first])
        waiting = asyncio.create_task(left.session.run([BEGIN, PIN, query, ROLLBACK]))
        await until_blocked(left, monitor)
        with monitor.transaction():
            free = monitor.execute(
                "select instance_id from holdfast.work where instance_id = any(%s) and path = '0'"
                " for update skip locked",
                [others],
            ).fetchall()
        assert {row[0] for row in free} == set(others)
    await waiting


async def test_letters_of_effects_are_locked_in_the_order_of_ids(
    actors: tuple[Actor, Actor], monitor: Db, dsn: str
) -> None:
    """Two people may answer the same letters, each with a list of their own order."""
    left, _ = actors
    world = await build(left)
    first, *others = (letter_id(one, "effect") for one in world.members)
    run = Run("replay_effects", left, world)
    with psycopg.connect(dsn) as holder:
        holder.execute("select from holdfast.dead_letters where id = %s for update", [UUID(bytes=first)])
        await run.step(monitor)
        assert run.waited
        with monitor.transaction():
            free = monitor.execute(
                "select id from holdfast.dead_letters where id = any(%s) for update skip locked",
                [[UUID(bytes=id) for id in others]],
            ).fetchall()
        assert len(free) == len(others)
    await run.end(monitor)
    assert run.error is None


async def until_blocked(actor: Actor, monitor: Db) -> None:
    async with asyncio.timeout(5):
        while not is_blocked(actor, monitor):
            await asyncio.sleep(0)


async def test_a_commit_without_locks_gives_up_soon(actors: tuple[Actor, Actor], monitor: Db, dsn: str) -> None:
    world = await build(actors[0])
    with psycopg.connect(dsn) as holder:
        holder.execute("select from holdfast.instances for update")
        run = Run("commit_in_one_flush", actors[0], world)
        async with asyncio.timeout(1.5):
            await run.end(monitor)
    assert run.error == "55P03"


@pytest.mark.parametrize(
    ("verb", "caller"),
    [
        ("commit_keyed_waits", "signal_a_key_in_a_transaction"),
        ("start_with_keys", "start_in_a_transaction"),
    ],
)
async def test_a_callers_open_transaction_holds_nobody_for_ever(
    verb: str, caller: str, actors: tuple[Actor, Actor], monitor: Db
) -> None:
    left, right = actors
    world = await build(left)
    forgotten = Run(caller, right, world)
    await forgotten.step(monitor)
    run = Run(verb, left, world)
    async with asyncio.timeout(10):
        await run.end(monitor)
    assert run.error == "55P03"
    assert not forgotten.is_over
    await right.give_up()


async def test_a_crowd_of_all_verbs_never_deadlocks(dsn: str, monitor: Db) -> None:
    """Without a conductor: where the statements themselves overlap, no flush boundary can force it."""
    crowd = [await Actor.enter(f"crowd-{n}", dsn) for n in range(4)]
    world = await build(crowd[0])
    errors: set[str] = set()

    async def act(actor: Actor, turns: list[str]) -> None:
        for name in turns:
            run = Run(name, actor, world)
            await run.all()
            errors.update({run.error} - {None})

    names = list(VERBS)
    await asyncio.gather(
        *(
            act(actor, [names[(n * 7 + turn * (n + 1)) % len(names)] for turn in range(60)])
            for n, actor in enumerate(crowd)
        )
    )
    for actor in crowd:
        await actor.leave()
    assert errors <= RACES
