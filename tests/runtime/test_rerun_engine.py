"""Re-run on the real thing: a step again in the same instance, or a new instance that begins there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from detours import check_replay, order, published, waits, works

from holdfast import Context, Engine
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.store.reads.instances import Event
from holdfast.store.reads.steps import place_of
from running import Evidence

pytestmark = pytest.mark.anyio


async def run(engine: Engine, flow: dict[str, Any], input: Any = None, **options: Any) -> str:
    await published(engine, flow)
    id = (await engine.start(flow["name"], input or {"n": 1}, **options)).id
    await engine.drain(timeout=30)
    return id


async def test_a_step_is_run_again_with_what_it_got(engine: Engine, holdfast_dsn: str) -> None:
    id = await run(engine, order(1, works("charge"), waits()))
    again = await engine.rerun(id, from_step="charge", by="ada", reason="the bank lost it")
    assert (again.id, again.status) == (id, "running")
    await engine.drain(timeout=30)
    steps = [(step.name, step.status, step.run) for step in await engine.steps(id)]
    assert steps == [
        ("one", "completed", 0), ("charge", "completed", 0), ("ask", "skipped", 0), ("charge", "completed", 1),
        ("ask", "waiting", 0),
    ]  # fmt: skip
    await engine.signal(id, "signed")
    await engine.drain(timeout=30)
    assert (await engine.get(id)).data["trail"] == ["one", "charge", "two"]
    check_replay(holdfast_dsn)


async def test_a_step_is_run_again_with_edited_input(engine: Engine) -> None:
    id = await run(engine, order(1, works("charge"), waits()))
    await engine.rerun(id, from_step="charge", input={"n": 2})
    await engine.drain(timeout=30)
    first, second = [step for step in await engine.steps(id) if step.name == "charge"]
    assert (first.input["n"], second.input) == (1, {"n": 2})


async def test_the_audit_trail_names_the_one_who_did_it(engine: Engine) -> None:
    id = await run(engine, order(1, waits()))
    await engine.rerun(id, from_step="one", input={"n": 2}, by="ada", reason="a typo")
    [event] = [e for e in await engine.events(id) if e.type == "step_rerun"]
    assert (event.actor, event.node) == ("ada", "one")
    assert event.detail == {"by": "ada", "reason": "a typo", "new_input": True, "run": 1}


async def test_a_dead_step_is_run_again_and_its_letter_is_settled(engine: Engine, holdfast_dsn: str) -> None:
    calls: list[tuple[Any, str]] = []

    @engine.handler("picky")
    async def picky(ctx: Context, data: Any) -> Any:
        calls.append((data, ctx.idempotency_key))
        if data.get("n") == 1:
            raise ValueError("not one")
        return data

    id = await run(engine, order(1, works("charge", "picky"), on_error="dlq"))
    assert (await engine.get(id)).status == "dlq"
    [letter] = await engine.dead_letters(id)
    await engine.rerun(id, from_step="charge", by="ada")
    await engine.drain(timeout=30)
    assert calls[0][1] == calls[1][1], "the same input goes out under the same key"
    await engine.rerun(id, from_step="charge", input={"n": 2}, by="ada")
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    assert calls[2][1] != calls[0][1]
    assert await engine.dead_letters(id) == []
    assert (await engine.dead_letter(letter.id)).resolved_by == "ada"
    check_replay(holdfast_dsn)


async def test_a_step_before_the_dead_one(engine: Engine, holdfast_dsn: str) -> None:
    @engine.handler("picky")
    async def picky(ctx: Context, data: Any) -> Any:
        if data["n"] == 1:
            raise ValueError("not one")
        return data

    id = await run(engine, order(1, works("charge", "picky"), on_error="dlq"))
    await engine.rerun(id, from_step="one", input={"n": 2})
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"
    assert await engine.dead_letters(id) == []
    check_replay(holdfast_dsn)


async def test_running_work_is_waited_for(engine: Engine) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    @engine.handler("slow")
    async def slow(ctx: Context, data: Any) -> Any:
        reached.set()
        await gate.wait()
        return data

    await published(engine, order(1, works("wait", "slow"), waits()))
    async with engine.worker():
        id = (await engine.start("order", {"n": 1}, version=1)).id
        await reached.wait()
        with pytest.raises(Conflict, match="RERUN_WORK_RUNNING"):
            await engine.rerun(id, from_step="one")
        gate.set()


async def test_what_makes_no_sense_is_refused(engine: Engine) -> None:
    id = await run(engine, order(1, waits()))
    with pytest.raises(NotFound, match="NODE_UNKNOWN"):
        await engine.rerun(id, from_step="nowhere")
    with pytest.raises(NotFound, match="RERUN_NEVER_REACHED"):
        await engine.rerun(id, from_step="two")
    with pytest.raises(NotFound, match="INSTANCE_UNKNOWN"):
        await engine.rerun("0190c3a0-0000-7000-8000-000000000000", from_step="one")


async def test_an_instance_that_is_over_is_run_again_as_a_new_one(engine: Engine, holdfast_dsn: str) -> None:
    id = await run(engine, order(1, works("charge")), business_key="order-17")
    assert (await engine.get(id)).status == "completed"
    new = await engine.rerun(id, from_step="charge", by="ada", reason="the bank lost it")
    assert (new.id != id, new.status, new.business_key) == (True, "pending", "order-17")
    assert new.input == {"n": 1, "trail": ["one"]}
    await engine.drain(timeout=30)
    done = await engine.get(new.id)
    assert (done.status, done.data["trail"]) == ("completed", ["one", "charge", "two"])
    assert [step.name for step in await engine.steps(new.id)] == ["charge", "two"]
    assert (await engine.get(id)).status == "completed"
    check_replay(holdfast_dsn)


async def test_the_two_instances_name_each_other(engine: Engine) -> None:
    id = await run(engine, order(1, works("charge")))
    new = await engine.rerun(id, from_step="charge", input={"n": 9}, by="ada", reason="twice")
    await engine.drain(timeout=30)
    [told] = [e for e in await engine.events(id) if e.type == "instance_run_again"]
    assert (told.actor, told.detail) == (
        "ada", {"step": "charge", "instance": new.id, "reason": "twice", "new_input": True},
    )  # fmt: skip
    begun = (await engine.events(new.id))[0]
    assert (begun.type, begun.detail, new.created_by) == ("instance_started", {"origin": id}, "ada")
    assert (await engine.get(new.id)).data["trail"] == ["charge", "two"]


async def test_a_new_instance_whose_start_was_lost_still_begins_at_its_step(engine: Engine, evidence: Evidence) -> None:
    id = await run(engine, order(1, works("charge")))
    new = await engine.rerun(id, from_step="charge")
    evidence.connection.execute("delete from holdfast.signals where instance_id = %s", [new.id])
    await engine.reenqueue(new.id)
    await engine.drain(timeout=30)
    assert [step.name for step in await engine.steps(new.id)] == ["charge", "two"]


async def test_it_may_be_run_again_as_often_as_one_likes(engine: Engine, holdfast_dsn: str) -> None:
    id = await run(engine, order(1, works("charge"), waits()))
    for _ in range(4):
        await engine.rerun(id, from_step="one")
        await engine.drain(timeout=30)
    runs = [step.run for step in await engine.steps(id) if step.name == "one"]
    assert runs == [0, 1, 2, 3, 4]
    check_replay(holdfast_dsn)


async def test_the_lines_about_it_stand_behind_what_came_before(engine: Engine) -> None:
    id = await run(engine, order(1, works("charge")))
    before = [event.type for event in await engine.events(id)]
    for _ in range(3):
        await engine.rerun(id, from_step="charge")
    whole = await engine.events(id)
    assert [event.type for event in whole] == [*before, *["instance_run_again"] * 3]
    assert [event.ordinal for event in whole[-3:]] == [1000, 1001, 1002]
    assert [event.created_at for event in whole] == sorted(event.created_at for event in whole)
    paged: list[Event] = []
    while page := await engine.events(id, after=place_of(paged[-1]) if paged else None, limit=2):
        paged += page
    assert paged == whole


async def test_the_same_key_runs_an_instance_that_is_over_again_once(engine: Engine) -> None:
    id = await run(engine, order(1, works("charge")))
    wish = {"from_step": "charge", "by": "ada", "key": "ticket-7"}
    first, *others = await asyncio.gather(*(engine.rerun(id, **wish) for _ in range(8)))
    assert first.id != id
    assert {again.id for again in others} == {first.id}
    await engine.drain(timeout=30)
    assert (await engine.rerun(id, **wish)).id == first.id
    assert (await engine.rerun(id, from_step="charge", by="ada", key="ticket-8")).id not in (id, first.id)
    told = [event.detail["key"] for event in await engine.events(id) if event.type == "instance_run_again"]
    assert told == ["ticket-7", "ticket-8"]


async def test_the_same_key_takes_an_instance_back_once(engine: Engine, holdfast_dsn: str) -> None:
    id = await run(engine, order(1, works("charge"), waits()))
    wish = {"from_step": "charge", "by": "ada", "key": "ticket-7"}
    again = await engine.rerun(id, **wish)
    await engine.drain(timeout=30)
    assert (await engine.rerun(id, **wish)).id == again.id == id
    await engine.signal(id, "signed")
    await engine.drain(timeout=30)
    assert (await engine.rerun(id, **wish, if_version=1)).id == id  # it is over now: the key still means what it did
    assert [step.run for step in await engine.steps(id) if step.name == "charge"] == [0, 1]
    check_replay(holdfast_dsn)


@pytest.mark.parametrize("other", [{"from_step": "one"}, {"input": {"n": 2}}, {"token": "0@1"}])
async def test_a_key_that_asked_for_something_else(engine: Engine, other: dict[str, Any]) -> None:
    id = await run(engine, order(1, works("charge")))
    wish = {"from_step": "charge", "key": "ticket-7"}
    await engine.rerun(id, **wish)
    with pytest.raises(Conflict) as refusal:
        await engine.rerun(id, **(wish | other))
    assert refusal.value.code == "IDEMPOTENCY_KEY_REUSED"
    with pytest.raises(Refused, match="idempotency key"):
        await engine.rerun(id, from_step="charge", key="")
    assert len((await engine.list()).items) == 2


async def test_after_a_migration_the_step_goes_by_its_new_name(engine: Engine, holdfast_dsn: str) -> None:
    await published(engine, order(2, works("collect"), waits()))
    id = await run(engine, order(1, works("charge"), waits()), version=1)
    await engine.migrate("order", to=2, nodes={"charge": "collect"})
    await engine.rerun(id, from_step="collect")
    await engine.drain(timeout=30)
    assert [step.name for step in await engine.steps(id)] == ["one", "charge", "ask", "collect", "ask"]
    check_replay(holdfast_dsn)
