"""The effects worker: one attempt by one worker, limits, recovery, replay, kinds of one's own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from effect_flows import event_types, flow, options, run, visited
from effect_process import effects_process
from effect_servers import Receiver

from holdfast import DoNotRetry, Engine, SyncEngine
from holdfast.compiler.graph import Edge, Graph, Node, Retry
from holdfast.errors import HoldfastError, NotFound
from holdfast.runtime.effects.delivery import Delivered, Delivery, EffectFailed
from holdfast.store import effects as outbox
from holdfast.store.effects import FinishedEffect
from holdfast.store.session import Session
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
        [old] = await outbox.claim_effects(session, [("webhook", target, 5)], 5, 5, zombie, 30)
        assert await outbox.claim_effects(session, [("webhook", target, 5)], 5, 5, b"y" * 16, 30) == []
        assert await outbox.reclaim_effects(session, 10) == 1  # nobody has heard of this worker's lease
        [new] = await outbox.claim_effects(session, [("webhook", target, 5)], 5, 5, b"y" * 16, 30)
        assert new.row.fence > old.row.fence
        late = FinishedEffect(old.row, zombie, "completed", 0, b"{}", None, None)
        assert await outbox.finish_effects(session, [late]) == 0
        assert statuses(evidence) == {"processing": 1}
        good = FinishedEffect(new.row, b"y" * 16, "completed", 0, b"{}", None, None)
        assert await outbox.finish_effects(session, [good, late]) == 1
        assert await outbox.finish_effects(session, [good]) == 0
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


# --- dead letters and replay ------------------------------------------------------------------------------------------


async def test_a_dead_effect_is_replayed_with_who_and_why(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    engine.effect_options = options(receiver)
    effect = await run(engine, flow(config={"url": receiver.url("/flaky/4")}))
    assert (effect.status, effect.attempts, len(receiver.requests)) == ("dead_letter", 3, 3)

    again = await engine.replay_effect(effect.id, by="ann", reason="the shop is back")
    assert (again.status, again.attempts, again.max_attempts) == ("pending", 3, 6)
    assert evidence.rows("select resolution, resolved_by from holdfast.dead_letters") == [("replayed", "ann")]
    await engine.drain(timeout=30)

    [effect] = await engine.effects(effect.instance_id)
    assert (effect.status, effect.attempts, effect.error) == ("completed", 5, None)
    assert len({(r.key, r.body) for r in receiver.requests}) == 1
    [entry] = [e for e in await engine.events(effect.instance_id) if e.type == "effect_replayed"]
    assert (entry.actor, entry.detail["reason"]) == ("ann", "the shop is back")
    with pytest.raises(NotFound) as refusal:
        await engine.replay_effect(effect.id, by="ann")
    assert refusal.value.code == "EFFECT_NOT_DEAD"


async def test_an_effect_may_die_twice_and_has_one_letter(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    engine.effect_options = options(receiver)
    effect = await run(engine, flow(config={"url": receiver.url("/status/404")}))
    await engine.replay_effect(effect.id, by="ann")
    await engine.drain(timeout=30)

    assert (await engine.effects(effect.instance_id))[0].status == "dead_letter"
    assert evidence.rows("select attempts, resolved_at, resolved_by from holdfast.dead_letters") == [(2, None, None)]


async def test_the_receipt_of_a_replay_that_comes_too_late_is_ignored(
    engine: Engine, receiver: Receiver, evidence: Evidence
) -> None:
    engine.effect_options = options(receiver)
    effect = await run(engine, flow(awaits=True, config={"url": receiver.url("/flaky/3")}))
    assert await visited(engine, effect) == ["start", "tell", "sorry"]
    before = await engine.get(effect.instance_id)

    await engine.replay_effect(effect.id, by="ann")
    await engine.drain(timeout=30)
    assert (await engine.effects(effect.instance_id))[0].status == "completed"
    after = await engine.get(effect.instance_id)
    assert (after.status, after.version) == (before.status, before.version)
    assert evidence.ask("select count(*) from holdfast.signals") == 0
    assert evidence.ask("select count(*) from holdfast.dead_letters where resolved_at is null") == 0


async def test_another_organisation_sees_and_replays_nothing(engine: Engine, receiver: Receiver) -> None:
    engine.effect_options = options(receiver)
    effect = await run(engine, flow(config={"url": receiver.url("/status/404")}))
    async with Engine(engine.dsn, org="other") as stranger:
        with pytest.raises(NotFound):
            await stranger.effects(effect.instance_id)
        with pytest.raises(NotFound):
            await stranger.replay_effect(effect.id, by="mallory")
    with pytest.raises(NotFound):
        await engine.replay_effect("not-an-id")
    assert (await engine.effects(effect.instance_id))[0].status == "dead_letter"


# --- kinds of one's own -----------------------------------------------------------------------------------------------


async def test_a_function_delivers_effects(engine: Engine) -> None:
    seen: list[tuple[str, int, Any]] = []

    @engine.effect("sms")
    def send(ctx: Delivery, data: dict[str, Any]) -> dict[str, str]:
        seen.append((ctx.key, ctx.attempt, ctx.config))
        if ctx.attempt == 1:
            raise ValueError("busy")
        return {"sent": data["to"]}

    effect = await run(engine, flow("sms", awaits=True, config={"sender": "shop"}), {"to": "+49"})
    assert effect.status == "completed"
    assert seen == [(effect.key, 1, {"sender": "shop"}), (effect.key, 2, {"sender": "shop"})]
    assert (await engine.get(effect.instance_id)).data == {"sent": "+49"}


@pytest.mark.parametrize(
    ("failure", "code", "attempts"),
    [
        (ValueError("nope"), "ValueError", 3),
        (DoNotRetry("never"), "EFFECT_GIVEN_UP", 1),
        (EffectFailed("SHOP_CLOSED", "Come tomorrow.", final=True), "SHOP_CLOSED", 1),
        (ValueError("\x00 \ud800"), "ValueError", 3),
        (EffectFailed("\x00", "\ud800", final=True, evidence={"bad": object()}), "\\0", 1),
    ],
)
async def test_a_function_that_fails(engine: Engine, failure: Exception, code: str, attempts: int) -> None:
    @engine.effect("sms")
    async def send(ctx: Delivery, data: Any) -> None:
        raise failure

    effect = await run(engine, flow("sms", awaits=True))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", code, attempts)
    assert await visited(engine, effect) == ["start", "tell", "sorry"]


async def test_a_function_that_hangs_is_cut_off(engine: Engine) -> None:
    @engine.effect("sms")
    async def send(ctx: Delivery, data: Any) -> None:
        await asyncio.Event().wait()

    effect = await run(engine, flow("sms", timeout=0.1, retry=Retry(calls=2)))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "EFFECT_TIMEOUT", 2)


async def test_a_result_that_cannot_be_stored_is_a_failure(engine: Engine) -> None:
    engine.register_effect("sms", lambda ctx, data: object())
    effect = await run(engine, flow("sms", awaits=True))
    assert (effect.status, effect.error["code"], effect.attempts) == ("dead_letter", "PAYLOAD_TYPE", 1)


async def test_a_kind_may_be_an_object_and_replace_a_built_in_one(engine: Engine) -> None:
    class Recorded:
        async def deliver(self, delivery: Delivery) -> Delivered:
            return Delivered({"n": 1}, {"note": delivery.target})

    kind = Recorded()
    engine.register_effect("webhook", kind)
    engine.register_effect("webhook", kind)
    with pytest.raises(HoldfastError) as refusal:
        engine.register_effect("webhook", Recorded())
    assert refusal.value.code == "EFFECT_KIND_DUPLICATE"
    effect = await run(engine, flow(config={"url": "https://Shop.example/x"}))
    assert effect.evidence == {"attempt": 1, "note": "shop.example"}


async def test_a_kind_nobody_serves_waits(engine: Engine) -> None:
    effect = await run(engine, flow("fax"))
    assert (effect.status, effect.attempts) == ("pending", 0)
    engine.register_effect("fax", lambda ctx, data: None)
    await engine.drain(timeout=30)
    assert (await engine.effects(effect.instance_id))[0].status == "completed"


async def test_kinds_come_from_installed_packages(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package as it lies in site-packages: a module and its metadata. A broken one beside it does no harm."""
    (tmp_path / "courier.py").write_text(
        "from holdfast.runtime.effects.delivery import Delivered\n"
        "def pigeon(ctx, data):\n    return {'by': 'pigeon'}\n"
        "class Drone:\n    async def deliver(self, delivery):\n        return Delivered({'by': 'drone'})\n"
    )
    metadata = tmp_path / "courier-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: courier\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[holdfast.effects]\npigeon = courier:pigeon\ndrone = courier:Drone\nbroken = courier:missing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "courier", raising=False)
    for kind in ("pigeon", "drone"):
        effect = await run(engine, flow(kind, name=kind, awaits=True))
        assert (await engine.get(effect.instance_id)).data == {"by": kind}
    assert (await run(engine, flow("broken", name="broken"))).status == "pending"


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


def test_the_same_without_an_event_loop(holdfast_dsn: str, receiver: Receiver) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        engine.engine.effect_options = options(receiver)
        engine.publish(flow(config={"url": receiver.url("/status/404")}))
        instance = engine.start("told", {})
        engine.drain(timeout=30)
        [effect] = engine.effects(instance.id)
        assert effect.status == "dead_letter"
        assert engine.replay_effect(effect.id, by="ann").status == "pending"
