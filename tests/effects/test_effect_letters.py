"""Effects that could not be delivered: dead letters, and replay."""

from __future__ import annotations

import pytest
from effect_flows import flow, options, run, visited
from effect_servers import Receiver

from holdfast import Engine, SyncEngine
from holdfast.errors import Conflict, NotFound
from running import Evidence

pytestmark = pytest.mark.anyio


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
    with pytest.raises(Conflict) as refusal:
        await engine.replay_effect(effect.id, by="ann")
    assert (refusal.value.code, refusal.value.detail["status"]) == ("EFFECT_NOT_DEAD", "completed")


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


def test_the_same_without_an_event_loop(holdfast_dsn: str, receiver: Receiver) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        engine.engine.effect_options = options(receiver)
        engine.publish(flow(config={"url": receiver.url("/status/404")}))
        instance = engine.start("told", {})
        engine.drain(timeout=30)
        [effect] = engine.effects(instance.id)
        assert effect.status == "dead_letter"
        assert engine.replay_effect(effect.id, by="ann").status == "pending"
