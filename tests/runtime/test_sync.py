"""The engine for code without an event loop: the same verbs, one thread behind them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast import ConsumerEvent, Machine, Trigger
from holdfast.doors.saga import Flow
from holdfast.errors import Conflict, HoldfastError, NotFound, StoreError
from holdfast.runtime.engine import Engine
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.testing import copied_database


@pytest.fixture(scope="module")
def dsn(holdfast_server: str) -> Iterator[str]:
    with copied_database(holdfast_server) as database:
        yield database.dsn


@pytest.fixture(scope="module")
def engine(dsn: str) -> Iterator[SyncEngine]:
    with SyncEngine(dsn) as engine:
        yield engine


def approval(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "saga",
        "version": 1,
        "entry": "ask",
        "nodes": [{"id": "ask", "kind": "human"}, {"id": "end", "kind": "end"}],
        "edges": [{"id": "yes", "source": "ask", "target": "end", "on": "approved"}],
    }


DOOR: dict[str, Any] = {
    "name": "door",
    "environment": "home",
    "version": 1,
    "states": [{"name": "Shut", "is_initial": True}, {"name": "Open"}, {"name": "Gone", "is_final": True}],
    "events": [{"code": 1, "name": "open"}, {"code": 2, "name": "shut"}, {"code": 3, "name": "remove"}],
    "transitions": [
        {"from": "Shut", "event": 1, "to": "Open"},
        {"from": "Open", "event": 2, "to": "Shut"},
        {"from": "Open", "event": 3, "to": "Gone"},
    ],
}


def test_a_flow_from_start_to_end(engine: SyncEngine) -> None:
    @engine.handler("add")
    def add(ctx: Any, data: dict[str, int]) -> dict[str, int]:
        return {"n": data["n"] + 1}

    @engine.handler("double")
    async def double(ctx: Any, data: dict[str, int]) -> dict[str, int]:
        return {"n": data["n"] * 2}

    published = engine.publish(Flow("sum").step("add", "add").step("double", "double").build())
    assert (published.name, published.new) == ("sum", True)
    started = engine.start("sum", {"n": 1}, key="sum-1")
    engine.drain(timeout=30)
    assert engine.get(started.id).status == "completed"
    assert [step.output for step in engine.steps(started.id) if step.behaviour == "work"] == [{"n": 2}, {"n": 4}]
    assert engine.start("sum", {"n": 1}, key="sum-1").id == started.id
    assert next(event.type for event in engine.events(started.id)) == "instance_started"
    assert [instance.id for instance in engine.list(flow="sum").items] == [started.id]


def test_a_worker_works_while_the_program_goes_on(engine: SyncEngine) -> None:
    engine.publish(approval("quick"))
    with engine.worker(concurrency=4):
        started = engine.start("quick", {})
        engine.signal(started.id, "approved", by="ann")
        assert engine.wait(started.id, timeout=10).status == "completed"
    with engine.worker():
        engine.wake()


def test_the_verbs_of_control(engine: SyncEngine) -> None:
    engine.publish(approval("controlled"))
    first, second, third = engine.start_many("controlled", [{}, {}, {}])
    engine.drain(timeout=30)
    assert engine.suspend(first.id).status == "suspended"
    assert engine.resume(first.id).status == "running"
    assert engine.cancel(first.id).status == "cancelled"
    assert engine.abort(second.id).status == "aborted"
    assert engine.force_fail(third.id).status == "failed"


def test_errors_are_those_of_the_engine(engine: SyncEngine) -> None:
    with pytest.raises(NotFound, match="FLOW_UNKNOWN"):
        engine.start("nothing", {})
    with engine.worker(), pytest.raises(Conflict, match="WORKER_RUNNING"), engine.worker():
        pass


# Public names of an `Engine` that a `SyncEngine` does not have, and why.
WITHOUT = {
    "lifespan": "the lifespan of an ASGI application runs on the application's loop",
    "running_worker": "a worker belongs to its loop; `with engine.worker()` runs one",
    "stats": "read by the server's own metrics; `engine.engine.stats()` needs no loop",
    "look_at_backlog": "refreshes `stats` for the server",
}
# Parts of an engine that are no verbs; `engine.engine` has them.
PARTS = {
    "app", "board", "calls", "catalog", "committer", "consumer_options", "consumers_here", "direct_dsn", "effect_kinds",
    "effect_options", "handlers", "hooks", "invokers", "options", "races", "refs", "telemetry",
}  # fmt: skip


def test_every_public_name_of_the_engine_is_here() -> None:
    there, here = Engine("postgresql://nowhere"), SyncEngine("postgresql://nowhere")
    missing = {name for name in dir(there) if name[0] != "_"} - set(dir(here))
    assert missing - PARTS == WITHOUT.keys()
    assert not PARTS & set(dir(Engine)), "a verb is no part"


def test_a_verb_takes_what_that_of_the_engine_takes() -> None:
    there, here = Engine("postgresql://nowhere"), SyncEngine("postgresql://nowhere")
    own = {"open", "close", "for_org", "worker", "wake", "listen", "follow_notices"}  # they have tests of their own
    compared = 0
    for name in {name for name, _ in inspect.getmembers(Engine, inspect.isroutine) if name[0] != "_"}:
        if name not in WITHOUT.keys() | own:
            assert inspect.signature(getattr(here, name)) == inspect.signature(getattr(there, name)), name
            assert getattr(here, name).__doc__ == getattr(there, name).__doc__
            compared += 1
    assert compared > 80


def test_machines_with_a_consumer_of_this_process(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        published = engine.import_machine(Machine.load(DOOR))
        door = engine.consumer("alarm", env="home")
        heard: list[tuple[str | None, Any]] = []

        @door.on("Open")
        def opened(event: ConsumerEvent, ctx: Any) -> Trigger:
            heard.append((event.event, engine.machine("home", "door", event.external_ref).state))
            return Trigger("shut", {"by": "alarm"})

        engine.drain(timeout=30)  # registers the consumer
        past = [{"event": "open", "occurred_at": "2026-01-31T08:00:00Z"}]
        assert engine.backfill("home", "door", "back", past).to_state == "Open"
        done = engine.trigger("home", "door", "front", "open", {"key": 7}, request_id="r-1", by="ann")
        assert (published.name, done.applied, done.to_state) == ("home.door", True, "Open")
        assert engine.trigger_answer("home", "door", "front", "r-1") == done
        assert engine.trigger_answer("home", "door", "front", "r-2") is None
        engine.drain(timeout=30)
        assert heard == [("open", "Open")]
        assert engine.machine("home", "door", "front").state == "Shut"
        assert [entry.to_state for entry in engine.lifecycle(done.instance).entries] == ["Shut", "Open", "Shut"]


def test_triggers_and_answers_in_a_transaction_of_the_caller(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine, psycopg.connect(holdfast_dsn) as conn:
        engine.import_machine(Machine.load(DOOR))
        engine.register_consumer("home", "log")
        while engine.get_consumer("home", "log").filling:
            assert engine.receive("home", "log") == []
        conn.execute("create table public.doors (name text)")
        conn.commit()
        for end in (conn.rollback, conn.commit):
            conn.execute("insert into public.doors values ('front')")
            sent = engine.trigger("home", "door", "front", "open", request_id="r-1", conn=conn)
            assert not sent.applied
            end()
        engine.drain(timeout=30)
        answer = engine.trigger_answer("home", "door", "front", "r-1")
        assert answer is not None
        assert (answer.applied, answer.to_state) == (True, "Open")
        with closing(engine.listen("home", "log")) as events:
            event = next(events)
        assert list(engine.listen("home", "log", life=0.01)) == [], "it is in hand"
        for end in (conn.rollback, conn.commit):
            engine.ack("home", "log", event.ack, "processed", then=("shut", None), conn=conn)
            end()
        engine.drain(timeout=30)
        assert engine.machine("home", "door", "front").state == "Shut"
        assert [one.status for one in engine.deliveries(instance=sent.instance, closed=True).items] == [
            "processed", "pending",
        ]  # fmt: skip
        assert conn.execute("select count(*) from public.doors").fetchone() == (1,)


def test_a_consumer_of_another_organisation_is_that_organisations(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        acme = engine.for_org("acme")
        assert acme.consumer("alarm", env="home").org == "acme"
        assert engine.consumer("alarm", env="home").org == "default"


def test_a_plain_handler_may_use_the_engine_it_runs_in(engine: SyncEngine) -> None:
    def start_another(ctx: Any, data: Any) -> str:
        return engine.start("other", {}).id

    engine.register("start_another", start_another)
    engine.publish(approval("other"))
    engine.publish(Flow("first").step("start", "start_another").build())
    started = engine.start("first", {})
    engine.drain(timeout=30)
    [step] = [step for step in engine.steps(started.id) if step.name == "start"]
    assert engine.get(step.output).flow == "other"


def test_an_async_handler_is_told_instead_of_hanging(engine: SyncEngine) -> None:
    async def block_the_loop(ctx: Any, data: Any) -> None:
        engine.start("sum", {})

    engine.register("block_the_loop", block_the_loop)
    engine.publish(Flow("blocking").step("block", "block_the_loop").build())
    started = engine.start("blocking", {})
    engine.drain(timeout=30)
    assert engine.steps(started.id)[0].error["code"] == "SYNC_INSIDE_LOOP"


def test_many_threads_share_one_engine(engine: SyncEngine) -> None:
    engine.publish(approval("shared"))
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(engine.start("shared", {}, key="one").id)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (8, 1)


def test_a_connection_is_used_in_the_thread_that_brought_it(engine: SyncEngine, dsn: str) -> None:
    used: list[threading.Thread] = []

    class Watched(psycopg.Connection[Any]):
        def wait(self, *args: Any, **options: Any) -> Any:
            used.append(threading.current_thread())
            return super().wait(*args, **options)

    engine.publish(approval("borrowed"))
    with Watched.connect(dsn) as conn:
        used.clear()
        engine.start("borrowed", {}, conn=conn)
        assert set(used) == {threading.current_thread()}


def test_a_worker_started_here_does_not_wait_for_this_thread(engine: SyncEngine, dsn: str) -> None:
    """Its tasks were born in a verb that is long over: a blocking connection of a handler is used where it is."""

    async def borrow(ctx: Any, data: Any) -> str:
        with psycopg.connect(dsn) as conn:
            return (await engine.engine.start("lent", {}, conn=conn)).id

    engine.register("borrow", borrow)
    engine.publish(approval("lent"))
    engine.publish(Flow("lender").step("borrow", "borrow").build())
    with engine.worker():
        started = engine.start("lender", {})
        assert engine.wait(started.id, timeout=10).status == "completed"


def test_another_organisation_through_the_same_engine(engine: SyncEngine) -> None:
    acme = engine.for_org("acme")
    acme.publish(approval("theirs"))
    theirs = acme.start("theirs", {})
    assert (acme.org, engine.org, acme.get(theirs.id).org) == ("acme", "default", "acme")
    with pytest.raises(NotFound):
        engine.get(theirs.id)
    for end in (acme.open, acme.close):
        with pytest.raises(HoldfastError, match="ENGINE_IS_A_VIEW"):
            end()
    assert engine.list().items is not None  # nothing was closed


def test_only_between_open_and_close(dsn: str) -> None:
    engine = SyncEngine(dsn)
    with pytest.raises(HoldfastError, match="ENGINE_CLOSED"):
        engine.start("sum", {})
    with engine:
        assert engine.list().items is not None
        assert (engine.dsn, engine.org) == (dsn, "default")
    with pytest.raises(HoldfastError, match="ENGINE_CLOSED"):
        engine.list()
    engine.close()


def test_an_engine_that_cannot_open_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(StoreError), SyncEngine("postgresql://127.0.0.1:1/nothing"):
        pass
    assert threading.active_count() == before


def test_an_interrupt_ends_the_wait_and_its_coroutine(engine: SyncEngine) -> None:
    ended = threading.Event()

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def wait_for_ever() -> None:
        from holdfast.store.connections import RUN_THERE

        try:
            there = RUN_THERE.get()
            assert there is not None
            await there(interrupt)
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        engine.wait_for(wait_for_ever())
    assert ended.wait(10)
