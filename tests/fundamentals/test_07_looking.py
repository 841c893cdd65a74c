"""Looking at what runs: lists, pages, steps, the audit trail, waiting for an end, starting many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Context, Engine, Flow
from holdfast.errors import NotFound, Refused

pytestmark = pytest.mark.anyio


async def echo(ctx: Context, data: Any) -> Any:
    return data


async def fail(ctx: Context, data: Any) -> None:
    raise ValueError("no")


@pytest.fixture
async def office(engine: Engine) -> Engine:
    await engine.publish(Flow("good").step("echo", echo).build())
    await engine.publish(Flow("bad").step("fail", fail).build())
    return engine


async def test_lists_are_filtered(office: Engine) -> None:
    good = [await office.start("good", {"n": n}, business_key=f"case-{n % 2}") for n in range(4)]
    bad = await office.start("bad")
    await office.drain(timeout=30)

    assert {i.id for i in (await office.list()).items} == {*(i.id for i in good), bad.id}
    assert {i.id for i in (await office.list(flow="good")).items} == {i.id for i in good}
    assert [i.id for i in (await office.list(status="failed")).items] == [bad.id]
    assert {i.id for i in (await office.list(status="completed")).items} == {i.id for i in good}
    assert {i.id for i in (await office.list(business_key="case-1")).items} == {good[1].id, good[3].id}
    assert (await office.list(flow="good", status="failed")).items == []
    with pytest.raises(Refused):
        await office.list(status="finished")


async def test_pages_follow_each_other_without_gap_or_overlap(office: Engine) -> None:
    ids = [i.id for i in await office.start_many("good", [{"n": n} for n in range(23)])]
    found: list[str] = []
    after: str | None = None
    while True:
        page = await office.list(flow="good", limit=5, after=after)
        found += [i.id for i in page.items]
        if page.next is None:
            break
        after = page.next
        await office.start("good")  # newer ones do not shift the pages behind them
    assert len(found) == len(set(found)) == 23
    assert set(found) == set(ids)
    assert found == sorted(found, reverse=True)


async def test_the_audit_trail_tells_the_story(office: Engine) -> None:
    instance = await office.start("good", {"n": 1}, by="ada")
    await office.drain(timeout=30)
    events = await office.events(instance.id)
    assert [e.type for e in events] == [
        "instance_started",
        "step_started",
        "step_completed",
        "token_ended",
        "instance_completed",
    ]
    assert [(e.version, e.ordinal) for e in events] == sorted((e.version, e.ordinal) for e in events)


async def test_waiting_ends_with_the_instance(office: Engine) -> None:
    async with office.worker():
        here = await office.start("good", {"n": 1})
        assert (await office.wait(here.id, timeout=10)).data == {"n": 1}
        assert (await office.wait(here.id, timeout=10)).status == "completed"
        bad = await office.start("bad", key="k")
        assert (await office.wait(bad.id, timeout=10)).status == "failed"


async def test_waiting_has_a_limit(office: Engine) -> None:
    instance = await office.start("good")
    with pytest.raises(TimeoutError) as late:
        await office.wait(instance.id, timeout=0.05)
    named = f"Instance {instance.id} of flow 'good' version 1 is still pending after 0.05 s"
    assert str(late.value) == f"{named}: no worker has taken it on yet."


async def test_a_wait_that_is_over_says_what_it_waited_for(office: Engine) -> None:
    await office.publish(Flow("asking").human("ask").build())
    instance = await office.start("asking")
    await office.drain(timeout=30)
    with pytest.raises(TimeoutError) as late:
        await office.wait(instance.id, timeout=0.05)
    named = f"Instance {instance.id} of flow 'asking' version 1 is still running after 0.05 s"
    assert str(late.value) == f"{named}: 'ask' is resting, waits for task."
    with pytest.raises(TimeoutError, match="cannot be read now"):
        await office.wait("00000000-0000-7000-8000-000000000000", timeout=0)


async def test_a_misspelt_option_of_the_worker_is_refused(office: Engine) -> None:
    with pytest.raises(Refused) as refusal:
        async with office.worker(concurency=4):
            pass
    assert (refusal.value.code, refusal.value.hint) == ("WORKER_OPTION_UNKNOWN", "Did you mean concurrency?")
    with pytest.raises(Refused, match="It takes concurrency, capacity, lease"):
        async with office.worker(zzz=1):
            pass
    assert office.running_worker is None


async def test_many_are_started_at_once(office: Engine) -> None:
    started = await office.start_many("good", [{"n": n} for n in range(300)], keys=[f"k{n}" for n in range(300)])
    again = await office.start_many("good", [{"n": n} for n in range(300)], keys=[f"k{n}" for n in range(300)])
    assert [i.id for i in started] == [i.id for i in again]
    await office.drain(timeout=60)
    ended = await asyncio.gather(*(office.get(i.id) for i in started))
    assert [i.data for i in ended] == [{"n": n} for n in range(300)]
    again = await office.start_many("good", [{"n": 0}], keys=["k0"])
    assert (again[0].id, again[0].status) == (started[0].id, "completed")


async def test_an_organisation_sees_only_its_own(office: Engine) -> None:
    mine = await office.start("good")
    async with Engine(office.dsn, org="acme") as acme:
        assert (await acme.list()).items == []
        for look in (acme.get, acme.steps, acme.events, acme.cancel):
            with pytest.raises(NotFound):
                await look(mine.id)
        with pytest.raises(NotFound):
            await acme.start("good")


async def test_drain_runs_what_is_due_and_returns(office: Engine) -> None:
    await office.drain(timeout=30)
    instance = await office.start("good")
    await office.drain(timeout=30)
    assert (await office.get(instance.id)).status == "completed"
    elsewhere = await office.publish(Flow("elsewhere").step("far", "nobody_here").build())
    assert elsewhere.new
    waiting = await office.start("elsewhere")
    await office.drain(timeout=30)
    assert (await office.get(waiting.id)).status == "running"
