"""The effects worker: one attempt by one worker, limits, recovery."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

import psycopg
import pytest
from effect_flows import event_types, flow, options, run, visited
from effect_process import effects_process
from effect_servers import Receiver

from holdfast import Engine
from holdfast.graph.model import Edge, Graph, Node, Retry
from holdfast.runtime.effects.delivery import Delivery
from holdfast.store import effects as outbox
from holdfast.store.effects import FinishedEffect
from holdfast.store.pg.session import Session
from holdfast.testing import advance
from running import Evidence, until

pytestmark = pytest.mark.anyio

WAITS_FOR_A_LOCK = (
    "select true from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    " and query like '%%holdfast.effects%%'"
)
STATUSES = "select status, count(*) from holdfast.effects group by status"


def statuses(evidence: Evidence) -> dict[str, int]:
    return dict(evidence.rows(STATUSES))


# --- one attempt by one worker ----------------------------------------------------------------------------------------


async def test_workers_never_make_the_same_attempt_twice(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    await engine.publish(flow(config={"url": receiver.url("/brief")}))
    await engine.start_many("told", [{"n": n} for n in range(120)])
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            other = await stack.enter_async_context(Engine(engine.dsn))
            other.effect_options = options(receiver, limit=40, read_timeout=10.0)
            await stack.enter_async_context(other.worker())
        await until(lambda: statuses(evidence) == {"completed": 120})

    assert len(receiver.requests) == len({r.key for r in receiver.requests}) == 120
    assert receiver.same_key_at_once == 1
    assert receiver.most_at_once > 3
    assert evidence.ask("select max(attempts) from holdfast.effects") == 1


async def test_the_limit_of_a_target_holds_over_all_workers(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    await engine.publish(flow(config={"url": receiver.url("/brief")}))
    await engine.start_many("told", [{"n": n} for n in range(40)])
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            other = await stack.enter_async_context(Engine(engine.dsn))
            other.effect_options = options(receiver, limits={receiver.host: 3}, read_timeout=10.0)
            await stack.enter_async_context(other.worker())
        await until(lambda: statuses(evidence) == {"completed": 40})

    assert receiver.most_at_once == 3


async def test_a_target_that_hangs_does_not_stand_before_the_others(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    held = flow(name="held", config={"url": receiver.url("/held"), "target": "slow"})
    await engine.publish(held)
    await engine.publish(flow(config={"url": receiver.url("/ok")}))
    engine.effect_options = options(receiver, limit=2, read_timeout=20.0)
    await engine.start_many("held", [{"n": n} for n in range(100)])
    async with engine.worker():
        await until(lambda: receiver.running.total() == 2)
        await engine.start_many("told", [{"n": n} for n in range(20)])
        await until(lambda: evidence.ask(f"{STATUSES} having status = 'completed'") is not None)
        done = "select count(*) from holdfast.effects where status = 'completed' and target <> 'slow'"
        await until(lambda: evidence.ask(done) == 20)
        assert evidence.ask("select count(*) from holdfast.effects where status = 'processing'") == 2
        receiver.gate.set()
        await until(lambda: statuses(evidence) == {"completed": 120})


async def test_more_targets_than_there_is_room_take_turns(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    for n in range(6):
        await engine.publish(flow(name=f"f{n}", config={"url": receiver.url("/brief"), "target": f"t{n}"}))
        await engine.start_many(f"f{n}", [{}] * 10)
    engine.effect_options = options(receiver, limit=10, concurrency=4, read_timeout=10.0)
    async with engine.worker():
        await until(lambda: len(receiver.requests) >= 24)
        begun = evidence.ask("select count(distinct target) from holdfast.effects where status <> 'pending'")
        await until(lambda: statuses(evidence) == {"completed": 60})

    assert begun == 6
    assert receiver.most_at_once <= 4


# --- recovery -----------------------------------------------------------------------------------------------------


async def test_killed_between_delivery_and_commit_it_is_delivered_again_under_the_same_key(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    """A lock on the row keeps the outcome from being stored, so the kill comes exactly in between."""
    await engine.publish(flow(awaits=True, config={"url": receiver.url("/held")}))
    instance = await engine.start("told", {"order": 1})
    with psycopg.connect(engine.dsn) as gate, effects_process(engine.dsn, receiver.host) as victim:
        await until(lambda: receiver.requests)
        gate.execute("select from holdfast.effects for update")
        receiver.gate.set()
        await until(lambda: evidence.ask(WAITS_FOR_A_LOCK))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        await until(lambda: not evidence.ask(WAITS_FOR_A_LOCK))  # what it had sent already gives up
    engine.effect_options = options(receiver)
    async with engine.worker(lease=1.0):
        await engine.wait(instance.id, timeout=30)

    [effect] = await engine.effects(instance.id)
    assert (effect.status, effect.attempts) == ("completed", 2)
    first, second = receiver.requests
    assert (first.key, first.body) == (second.key, second.body)
    assert (first.headers["holdfast-attempt"], second.headers["holdfast-attempt"]) == ("1", "2")
    assert await event_types(engine, effect) == ["effect_emitted", "effect_failed", "effect_delivered"]
    lost = [e for e in await engine.events(instance.id) if e.type == "effect_failed"]
    assert lost[0].detail["code"] == "LEASE_LOST"
    assert len(await engine.steps(instance.id)) == 2


@pytest.mark.parametrize(
    ("node", "code"),
    [({"retry": Retry(calls=2)}, "LEASE_LOST"), ({"retry": None, "idempotent": False}, "OUTCOME_UNKNOWN")],
)
async def test_a_lost_worker_uses_up_an_attempt(
    engine: Engine, receiver: Receiver, evidence: Evidence, node: dict[str, Any], code: str
) -> None:
    await engine.publish(flow(awaits=True, config={"url": receiver.url("/never")}, **node))
    instance = await engine.start("told", {})
    attempts = 2 if code == "LEASE_LOST" else 1
    for attempt in range(1, attempts + 1):
        with effects_process(engine.dsn, receiver.host) as victim:
            await until(lambda attempt=attempt: len(receiver.requests) == attempt)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
    engine.effect_options = options(receiver)
    async with engine.worker(lease=1.0):
        await engine.wait(instance.id, timeout=30)

    [effect] = await engine.effects(instance.id)
    assert (effect.status, effect.error["code"]) == ("dead_letter", code)
    assert len(receiver.requests) == attempts
    assert await visited(engine, effect) == ["start", "tell", "sorry"]


async def test_an_outcome_under_an_old_fence_does_not_count(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    await engine.publish(flow(config={"url": receiver.url("/ok")}))
    await engine.start("told", {})
    async with engine.worker(effects=False):
        await until(lambda: statuses(evidence) == {"pending": 1})
    session = await Session.open(engine.dsn)
    try:
        zombie = b"z" * 16
        [(target, _)] = (await outbox.list_targets(session, "webhook")).items()
        [old] = await outbox.claim_effects(session, [("webhook", target, 5, "")], 5, 5, zombie, 30)
        assert await outbox.claim_effects(session, [("webhook", target, 5, "")], 5, 5, b"y" * 16, 30) == []
        assert len(await outbox.reclaim_effects(session, 10)) == 1  # nobody has heard of this worker's lease
        [new] = await outbox.claim_effects(session, [("webhook", target, 5, "")], 5, 5, b"y" * 16, 30)
        assert new.row.fence > old.row.fence
        late = FinishedEffect(old.row, zombie, "completed", 0, b"{}", None, None)
        assert await outbox.finish_effects(session, [late]) == []
        assert statuses(evidence) == {"processing": 1}
        good = FinishedEffect(new.row, b"y" * 16, "completed", 0, b"{}", None, None)
        [counted] = await outbox.finish_effects(session, [good, late])
        assert (counted.id, counted.fence) == (new.row.id, new.row.fence)
        assert await outbox.finish_effects(session, [good]) == []
    finally:
        await session.close()
    assert statuses(evidence) == {"completed": 1}


async def test_a_claim_whose_answer_was_lost_is_given_back(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    """Leased to this very worker, which does not know of it."""
    await engine.publish(flow(config={"url": receiver.url("/ok")}))
    await engine.start("told", {})
    async with engine.worker(effects=False):
        await until(lambda: statuses(evidence) == {"pending": 1})
    engine.effect_options = options(receiver, scan=0.05)
    async with engine.worker() as worker:
        assert worker.effects is not None
        evidence.connection.execute(
            "update holdfast.effects set status = 'processing', worker = %s, attempts = attempts + 1,"
            " fence = fence + 1, deadline_at = clock_timestamp() + interval '1 hour' where status = 'pending'",
            [worker.lease.id.hex()],
        )
        worker.effects._strays = True
        worker.effects.wake()
        await until(lambda: statuses(evidence) == {"completed": 1})
    assert len(receiver.requests) == 1


async def test_connections_may_be_cut_while_effects_are_delivered(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    await engine.publish(flow(awaits=True, retry=Retry(calls=20), config={"url": receiver.url("/brief")}))
    engine.effect_options = options(receiver, limit=20, read_timeout=10.0)
    async with engine.worker(lease=5.0):
        started = await engine.start_many("told", [{"n": n} for n in range(60)])
        for _ in range(6):
            seen = len(receiver.requests)
            evidence.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            await until(lambda seen=seen: len(receiver.requests) > seen or statuses(evidence) == {"completed": 60})
        for instance in started:
            assert (await engine.wait(instance.id, timeout=60)).status == "completed"
    assert statuses(evidence) == {"completed": 60}
    assert len({r.key for r in receiver.requests}) == 60


async def test_a_worker_that_leaves_lets_deliveries_finish(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    await engine.publish(flow(config={"url": receiver.url("/held")}))
    await engine.start_many("told", [{}] * 3)
    engine.effect_options = options(receiver, read_timeout=20.0)
    async with engine.worker(grace=20.0):
        await until(lambda: receiver.running.total() == 3)
        threading.Timer(0.2, receiver.gate.set).start()
    assert statuses(evidence) == {"completed": 3}


async def test_a_delivery_that_outlasts_the_grace_time_is_for_others(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    await engine.publish(flow(config={"url": receiver.url("/held")}))
    await engine.start("told", {})
    engine.effect_options = options(receiver, read_timeout=20.0)
    async with engine.worker(grace=0.1):
        await until(lambda: receiver.requests)
    assert evidence.rows("select status, worker, error ->> 'code' from holdfast.effects") == [
        ("failed", None, "EFFECT_INTERRUPTED")
    ]
    receiver.gate.set()
    await engine.drain(timeout=30)
    assert statuses(evidence) == {"completed": 1}


async def test_one_process_may_leave_effects_to_others(engine: Engine, receiver: Receiver, evidence: Evidence) -> None:
    await engine.publish(flow(config={"url": receiver.url("/ok")}))
    await engine.start("told", {})
    async with engine.worker(effects=False):
        await until(lambda: statuses(evidence) == {"pending": 1})
        await engine.drain(timeout=30)
    assert receiver.requests == []
    assert statuses(evidence) == {"pending": 1}


async def test_many_outcomes_share_a_commit(engine: Engine, receiver: Receiver, evidence: Evidence) -> None:
    done: list[int] = []

    @engine.effect("quick")
    async def quick(ctx: Delivery, data: Any) -> int:
        done.append(data["n"])
        return data["n"]

    await engine.publish(flow("quick", awaits=True))
    await engine.start_many("told", [{"n": n} for n in range(300)])
    engine.effect_options = options(receiver, limit=500, concurrency=500)
    await engine.drain(timeout=60)
    assert statuses(evidence) == {"completed": 300}
    assert sorted(done) == list(range(300))
    commits = evidence.ask("select count(distinct completed_at) from holdfast.effects")
    assert commits < 60
    assert evidence.ask("select count(*) from holdfast.instances where status = 'completed'") == 300


async def test_many_effects_of_one_instance_end_in_one_commit(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    branches = 12
    nodes = [
        Node(id="start", kind="start"),
        Node(id="fork", kind="split"),
        *(Node(id=f"tell{n}", kind="effect", handler="quick", awaits=True) for n in range(branches)),
        Node(id="join", kind="join", mode="all"),
        Node(id="done", kind="end"),
    ]
    edges = [Edge(id="a", source="start", target="fork"), Edge(id="z", source="join", target="done")]
    for n in range(branches):
        edges.append(Edge(id=f"in{n}", source="fork", target=f"tell{n}"))
        edges.append(Edge(id=f"out{n}", source=f"tell{n}", target="join"))
    engine.register_effect("quick", lambda ctx, data: ctx.token)
    engine.effect_options = options(receiver, limit=50)
    await engine.publish(Graph(name="wide", entry="start", nodes=tuple(nodes), edges=tuple(edges)))
    instance = await engine.start("wide", {})
    await engine.drain(timeout=30)

    assert (await engine.get(instance.id)).status == "completed"
    events = [e for e in await engine.events(instance.id) if e.type == "effect_delivered"]
    assert sorted(e.node for e in events if e.node) == sorted(f"tell{n}" for n in range(branches))


async def test_an_effect_is_not_due_before_its_time(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    retry = Retry(calls=2, delay=3600)
    effect = await run(engine, flow(retry=retry, config={"url": receiver.url("/flaky/1")}))
    assert (effect.status, effect.attempts) == ("failed", 1)
    async with engine.worker():
        await advance(engine, minutes=59)
        await engine.drain(timeout=30)
        assert len(receiver.requests) == 1
        await advance(engine, minutes=2)
        await until(lambda: len(receiver.requests) == 2)
        await engine.drain(timeout=30)
    assert (await engine.effects(effect.instance_id))[0].status == "completed"
