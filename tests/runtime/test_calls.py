"""Calls run inside the engine's transaction: what they write and the step that records them are one."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast.errors import Refused
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.runtime.worker.handlers import DoNotRetry
from holdfast.store.commit.calls import CallLimits
from holdfast.store.reads.instances import Instance, Step
from holdfast.testing import copied_database

TABLES = """
create table public.hotels (name text primary key);
create table public.bookings (
    name text not null,
    hotel text references public.hotels deferrable initially deferred
);
"""


@pytest.fixture(scope="module")
def engine(holdfast_server: str) -> Iterator[SyncEngine]:
    with copied_database(holdfast_server) as database, SyncEngine(database.dsn) as engine:
        with psycopg.connect(database.dsn) as conn:
            conn.execute(TABLES)
        yield engine


@pytest.fixture
def name() -> str:
    return f"n{uuid.uuid4().hex}"


def publish(engine: SyncEngine, name: str, *functions: Callable[..., Any], **options: Any) -> None:
    """A flow of calls in a row; the options are those of the first."""
    ids = [f"{name}_{number}" for number in range(len(functions))]
    nodes: list[dict[str, Any]] = [{"id": id, "kind": "action", "handler": id} for id in ids]
    nodes[0].update(options)
    follow = zip(ids, [*ids[1:], "end"], strict=True)
    edges = [{"id": f"from_{source}", "source": source, "target": target} for source, target in follow]
    graph = {"name": name, "kind": "saga", "version": 1, "entry": ids[0], "edges": edges}
    engine.publish({**graph, "nodes": [*nodes, {"id": "end", "kind": "end"}], "policy": {"on_error": "fail"}})
    for id, function in zip(ids, functions, strict=True):
        engine.call(id)(function)


def perform(engine: SyncEngine, name: str) -> Instance:
    started = engine.start(name, {"name": name})
    engine.drain(timeout=30)
    return engine.get(started.id)


def steps(engine: SyncEngine, instance: Instance) -> list[Step]:
    return [step for step in engine.steps(instance.id) if step.behaviour == "call"]


def code(engine: SyncEngine, instance: Instance) -> str:
    assert instance.status == "failed", instance
    return steps(engine, instance)[-1].error["code"]


def bookings(engine: SyncEngine, name: str) -> int:
    with psycopg.connect(engine.dsn) as conn:
        row = conn.execute("select count(*) from public.bookings where name = %s", (name,)).fetchone()
        assert row is not None
        return row[0]


async def book(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    await ctx.conn.execute("insert into public.bookings (name) values (%s)", (data["name"],))
    return {**data, "booked": True}


def book_blocking(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    with ctx.conn.cursor() as cursor:
        cursor.execute("insert into public.bookings (name) values (%s)", (data["name"],))
    return {**data, "booked": True}


@pytest.mark.parametrize("function", [book, book_blocking])
def test_a_call_and_its_step_are_one_commit(engine: SyncEngine, name: str, function: Callable[..., Any]) -> None:
    publish(engine, name, function)
    instance = perform(engine, name)
    [step] = steps(engine, instance)
    assert (instance.status, step.status, step.output) == ("completed", "completed", {"name": name, "booked": True})
    with psycopg.connect(engine.dsn) as conn:
        row = conn.execute(
            "select b.xmin = s.xmin from public.bookings b, holdfast.steps s where b.name = %s and s.id = %s",
            (name, step.id),
        ).fetchone()
        assert row == (True,)


def test_nobody_sees_it_before_the_commit(engine: SyncEngine, name: str) -> None:
    seen: list[int] = []

    async def look(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        seen.append(await asyncio.to_thread(bookings, engine, name))

    publish(engine, name, look)
    assert perform(engine, name).status == "completed"
    assert (seen, bookings(engine, name)) == ([0], 1)


def test_a_failure_rolls_back_and_is_retried(engine: SyncEngine, name: str) -> None:
    async def flaky(ctx: Any, data: dict[str, Any]) -> int:
        await book(ctx, data)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    publish(engine, name, flaky, retry={"calls": 2})
    instance = perform(engine, name)
    [step] = steps(engine, instance)
    assert (instance.status, step.attempts, step.output) == ("completed", 2, 2)
    assert bookings(engine, name) == 1


@pytest.mark.parametrize(("error", "attempts"), [(ValueError("no"), 2), (DoNotRetry("never"), 1)])
def test_the_last_failure_fails_the_instance(engine: SyncEngine, name: str, error: Exception, attempts: int) -> None:
    async def fail(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        raise error

    publish(engine, name, fail, retry={"calls": 2})
    instance = perform(engine, name)
    [step] = steps(engine, instance)
    assert (instance.status, step.status, step.attempts) == ("failed", "failed", attempts)
    assert (step.error["code"], bookings(engine, name)) == (type(error).__name__, 0)


async def transaction_id(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
    cursor = await ctx.conn.execute("select pg_current_xact_id()::text")
    [id] = await cursor.fetchone()
    return {**data, ctx.step.rpartition("_")[2]: id, "attempt": ctx.attempt}


def test_calls_in_a_row_share_one_transaction(engine: SyncEngine, name: str) -> None:
    publish(engine, name, transaction_id, transaction_id, transaction_id)
    instance = perform(engine, name)
    assert instance.status == "completed"
    output = steps(engine, instance)[-1].output
    assert output["0"] == output["1"] == output["2"]


def test_a_later_calls_failure_is_its_own(engine: SyncEngine, name: str) -> None:
    async def fail(ctx: Any, data: dict[str, Any]) -> None:
        raise ValueError("the second")

    publish(engine, name, book, fail)
    instance = perform(engine, name)
    first, second = steps(engine, instance)
    assert (instance.status, first.status, second.status) == ("failed", "completed", "failed")
    assert (bookings(engine, name), second.error["message"]) == (1, "the second")


def test_a_chain_longer_than_the_limit_goes_on_one_by_one(engine: SyncEngine, name: str) -> None:
    publish(engine, name, *([transaction_id] * 12))
    instance = perform(engine, name)
    assert (instance.status, len(steps(engine, instance))) == ("completed", 12)


async def commits(ctx: Any, _: object) -> None:
    await ctx.conn.commit()


async def rolls_back(ctx: Any, _: object) -> None:
    await ctx.conn.rollback()


async def closes(ctx: Any, _: object) -> None:
    await ctx.conn.close()


async def says_commit(ctx: Any, _: object) -> None:
    await ctx.conn.execute("/* sly */ select 1; COMMIT")


async def takes_a_role(ctx: Any, _: object) -> None:
    async with ctx.conn.cursor() as cursor:
        await cursor.execute("set local role pg_monitor")


def commits_blocking(ctx: Any, _: object) -> None:
    ctx.conn.commit()


def says_rollback(ctx: Any, _: object) -> None:
    ctx.conn.execute("rollback")


REFUSED = [commits, rolls_back, closes, says_commit, takes_a_role, commits_blocking, says_rollback]


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_the_transaction_is_not_the_calls_to_end(engine: SyncEngine, name: str, function: Callable[..., Any]) -> None:
    publish(engine, name, function)
    assert code(engine, perform(engine, name)) == "CALL_TRANSACTION_CONTROL"


def test_a_commit_behind_our_back_is_noticed(engine: SyncEngine, name: str) -> None:
    async def sly(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        await psycopg.AsyncClientCursor(ctx.conn).execute("commit")
        await psycopg.AsyncClientCursor(ctx.conn).execute("begin")

    publish(engine, name, sly)
    assert code(engine, perform(engine, name)) == "CALL_LEFT_TRANSACTION"


def test_a_savepoint_is_fine(engine: SyncEngine, name: str) -> None:
    async def careful(ctx: Any, data: dict[str, Any]) -> str:
        await book(ctx, data)
        try:
            async with ctx.conn.transaction():
                await ctx.conn.execute("insert into public.bookings (name) values (null)")
        except psycopg.errors.NotNullViolation:
            return "went on"
        return "unexpected"

    publish(engine, name, careful)
    instance = perform(engine, name)
    assert (instance.status, steps(engine, instance)[0].output) == ("completed", "went on")
    assert bookings(engine, name) == 1


def test_an_error_that_was_swallowed_comes_out(engine: SyncEngine, name: str) -> None:
    async def careless(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        try:
            await ctx.conn.execute("insert into public.bookings (name) values (null)")
        except psycopg.errors.NotNullViolation:
            return

    publish(engine, name, careless)
    assert code(engine, perform(engine, name)) == "CALL_TRANSACTION_FAILED"
    assert bookings(engine, name) == 0


def test_deferred_constraints_are_checked_before_the_step_is_recorded(engine: SyncEngine, name: str) -> None:
    async def nowhere(ctx: Any, data: dict[str, Any]) -> None:
        await ctx.conn.execute("insert into public.bookings values (%s, 'nowhere')", (data["name"],))

    publish(engine, name, nowhere)
    assert code(engine, perform(engine, name)) == "ForeignKeyViolation"
    assert bookings(engine, name) == 0


async def hangs(ctx: Any, _: object) -> None:
    await ctx.conn.execute("select pg_sleep(60)")


def hangs_blocking(ctx: Any, _: object) -> None:
    ctx.conn.execute("select pg_sleep(60)")


@pytest.mark.parametrize("function", [hangs, hangs_blocking])
def test_a_hanging_statement_is_ended(engine: SyncEngine, name: str, function: Callable[..., Any]) -> None:
    publish(engine, name, function)
    started = engine.start(name, {})
    with engine.worker(calls=CallLimits(statement=0.05)):
        instance = engine.wait(started.id, timeout=10)
    assert code(engine, instance) == "QueryCanceled"


@pytest.mark.parametrize("function", [hangs, hangs_blocking])
def test_a_nodes_timeout_counts_for_calls(engine: SyncEngine, name: str, function: Callable[..., Any]) -> None:
    publish(engine, name, function, timeout=0.05)
    assert code(engine, perform(engine, name)) in ("STEP_TIMEOUT", "QueryCanceled")


def test_a_function_that_hangs_elsewhere_times_out_too(engine: SyncEngine, name: str) -> None:
    async def lingers(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        await asyncio.Event().wait()

    publish(engine, name, lingers, timeout=0.05)
    assert code(engine, perform(engine, name)) == "STEP_TIMEOUT"
    assert bookings(engine, name) == 0


def test_a_lock_somebody_holds_is_not_awaited_for_ever(engine: SyncEngine, name: str) -> None:
    with psycopg.connect(engine.dsn) as conn:
        conn.execute("insert into public.hotels values (%s)", (name,))
        conn.commit()
        conn.execute("select * from public.hotels where name = %s for update", (name,))

        async def waits(ctx: Any, data: dict[str, Any]) -> None:
            await ctx.conn.execute("update public.hotels set name = name where name = %s", (data["name"],))

        publish(engine, name, waits)
        started = engine.start(name, {"name": name})
        with engine.worker(calls=CallLimits(lock=0.05)):
            instance = engine.wait(started.id, timeout=10)
    assert code(engine, instance) == "LockNotAvailable"


def test_the_connection_is_dead_after_the_call(engine: SyncEngine, name: str) -> None:
    kept: list[Any] = []

    async def keep(ctx: Any, data: dict[str, Any]) -> None:
        kept.append(ctx.conn)

    publish(engine, name, keep)
    with engine.worker():
        assert engine.wait(engine.start(name, {}).id, timeout=10).status == "completed"
        with pytest.raises(Refused, match="CALL_OVER"):
            engine.wait_for(kept[0].execute("select 1"))


def test_what_a_call_sets_in_the_session_is_gone_for_the_next(engine: SyncEngine, name: str) -> None:
    async def leave(ctx: Any, data: dict[str, Any]) -> None:
        await ctx.conn.execute("set application_name = 'left behind'")

    async def find(ctx: Any, data: dict[str, Any]) -> str:
        cursor = await ctx.conn.execute("select current_setting('application_name')")
        return (await cursor.fetchone())[0]

    publish(engine, name, leave)
    publish(engine, f"{name}x", find)
    with engine.worker(calls=CallLimits(sessions=1)):
        assert engine.wait(engine.start(name, {}).id, timeout=10).status == "completed"
        instance = engine.wait(engine.start(f"{name}x", {}).id, timeout=10)
    assert steps(engine, instance)[0].output != "left behind"


def test_a_call_acts_as_the_login_for_its_organisation(engine: SyncEngine, name: str) -> None:
    async def who(ctx: Any, data: dict[str, Any]) -> list[Any]:
        question = (
            "select current_user = session_user, current_setting('holdfast.org'), current_setting('enable_seqscan')"
        )
        return list(await (await ctx.conn.execute(question)).fetchone())

    publish(engine, name, who)
    assert steps(engine, perform(engine, name))[0].output == [True, "default", "on"]


def test_a_call_starts_another_flow_with_its_own_commit(engine: SyncEngine, name: str) -> None:
    async def start(ctx: Any, data: dict[str, Any]) -> str:
        started = await engine.engine.start(f"{name}x", data, conn=ctx.conn)
        assert started.status == "pending"
        return started.id

    publish(engine, f"{name}x", book)
    publish(engine, name, start)
    instance = perform(engine, name)
    engine.drain(timeout=30)
    assert engine.get(steps(engine, instance)[0].output).status == "completed"
    assert bookings(engine, name) == 1


def test_a_lost_connection_is_a_failed_call_and_the_next_has_a_new_one(engine: SyncEngine, name: str) -> None:
    async def suicidal(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        if ctx.attempt == 1:
            await ctx.conn.execute("select pg_terminate_backend(pg_backend_pid())")

    publish(engine, name, suicidal, retry={"calls": 2})
    instance = perform(engine, name)
    assert (instance.status, steps(engine, instance)[0].attempts) == ("completed", 2)
    assert bookings(engine, name) == 1


def test_a_call_waits_until_its_instance_is_free(engine: SyncEngine, name: str) -> None:
    publish(engine, name, book)
    started = engine.start(name, {"name": name}, key=name)
    with SyncEngine(engine.dsn) as other:  # has no calls: it only opens the step
        other.drain(timeout=30)
    with psycopg.connect(engine.dsn) as conn:
        conn.execute("select 1 from holdfast.instances where id = %s for no key update", (started.id,))
        with engine.worker():
            until(lambda: claimed(engine, started.id))
            assert bookings(engine, name) == 0
            conn.rollback()
            assert engine.wait(started.id, timeout=10).status == "completed"
    assert bookings(engine, name) == 1


def claimed(engine: SyncEngine, id: str) -> bool:
    with psycopg.connect(engine.dsn) as conn:
        return conn.execute(
            "select worker is not null from holdfast.work where instance_id = %s", (id,)
        ).fetchone() == (True,)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline


def test_a_call_that_was_cut_off_is_run_by_the_next_worker(engine: SyncEngine, name: str) -> None:
    entered = threading.Event()

    async def stuck_once(ctx: Any, data: dict[str, Any]) -> None:
        await book(ctx, data)
        if not entered.is_set():
            entered.set()
            await asyncio.Event().wait()

    publish(engine, name, stuck_once, retry={"calls": 3})
    with engine.worker(grace=0.0):
        started = engine.start(name, {"name": name})
        assert entered.wait(10)
    assert (bookings(engine, name), engine.get(started.id).status) == (0, "running")
    with engine.worker():
        assert engine.wait(started.id, timeout=20).status == "completed"
    assert bookings(engine, name) == 1


def test_a_cancelled_instances_call_is_not_run(engine: SyncEngine, name: str) -> None:
    publish(engine, name, book)
    started = engine.start(name, {"name": name}, key=name)
    with SyncEngine(engine.dsn) as other:
        other.drain(timeout=30)
    engine.cancel(started.id)
    engine.drain(timeout=30)
    assert (bookings(engine, name), engine.get(started.id).status) == (0, "cancelled")
