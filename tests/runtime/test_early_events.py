"""Events and the waits they are meant for, in a race: whoever comes first, each event arrives once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Branch, Context, Engine, Flow
from holdfast.core.signals.early import MOST_KEPT
from holdfast.errors import Conflict, Refused
from holdfast.runtime.commit.options import Options
from holdfast.testing import advance
from running import Evidence

pytestmark = pytest.mark.anyio

ROUNDS = 60


def graph(name: str, wait: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "entry": "work",
        "nodes": [
            {"id": "work", "kind": "task", "handler": "work"},
            {"id": "wait", "kind": "wait_event", "wait": wait},
            {"id": "after", "kind": "task", "handler": "after"},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "work>wait", "source": "work", "target": "wait"},
            {"id": "wait>after", "source": "wait", "target": "after"},
            {"id": "after>end", "source": "after", "target": "end"},
        ],
    }


@pytest.fixture
async def arrivals(engine: Engine) -> dict[str, int]:
    """How often each instance got past its wait."""
    counted: dict[str, int] = {}

    @engine.handler("work")
    async def work(ctx: Context, data: Any) -> Any:
        await asyncio.sleep(0.001 * (data["n"] % 5))
        return data

    @engine.handler("after")
    async def after(ctx: Context, data: Any) -> Any:
        counted[ctx.instance] = counted.get(ctx.instance, 0) + 1
        return data

    await engine.publish(graph("by_instance", {"event": "go", "early": True}))
    await engine.publish(graph("by_key", {"event": "go", "key": "input.key"}))
    return counted


async def test_an_event_for_an_instance_meets_its_wait(engine: Engine, arrivals: dict[str, int]) -> None:
    async def one(n: int) -> str:
        instance = await engine.start("by_instance", {"n": n})
        await asyncio.sleep(0.001 * (n % 7))
        await engine.signal(instance.id, "go", {"n": n})
        return instance.id

    async with engine.worker():
        ids = await asyncio.gather(*(one(n) for n in range(ROUNDS)))
        ended = await asyncio.gather(*(engine.wait(id, timeout=20) for id in ids))
    assert [i.data for i in ended] == [{"n": n} for n in range(ROUNDS)]
    assert arrivals == dict.fromkeys(ids, 1)


async def test_an_event_by_key_meets_its_waits_in_every_process(
    engine: Engine, arrivals: dict[str, int], evidence: Evidence
) -> None:
    async def one(n: int, sender: Engine) -> list[str]:
        pair = [await engine.start("by_key", {"n": n + m, "key": f"k{n}"}) for m in range(2)]
        await asyncio.sleep(0.001 * (n % 7))
        await sender.signal_key("go", f"k{n}", {"n": n})
        return [i.id for i in pair]

    async with engine.worker(), Engine(engine.dsn) as elsewhere:
        pairs = await asyncio.gather(*(one(n, elsewhere) for n in range(ROUNDS)))
        ended = [await asyncio.gather(*(engine.wait(id, timeout=20) for id in pair)) for pair in pairs]
    assert [[i.data for i in pair] for pair in ended] == [[{"n": n}] * 2 for n in range(ROUNDS)]
    assert arrivals == dict.fromkeys((id for pair in pairs for id in pair), 1)
    assert evidence.ask("select count(*) from holdfast.key_waits") == 0
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0


async def test_an_event_kept_and_the_step_before_its_wait_in_one_batch(engine: Engine, evidence: Evidence) -> None:
    """The event is not in the inbox yet when the wait opens: it is taken from the batch itself."""
    engine.register("after", lambda ctx, data: data)
    await engine.publish(
        {
            **graph("queued", {"event": "go", "early": True}),
            "nodes": [
                {"id": "work", "kind": "state"},
                {"id": "wait", "kind": "wait_event", "wait": {"event": "go", "early": True}},
                {"id": "after", "kind": "task", "handler": "after"},
                {"id": "end", "kind": "end"},
            ],
            "edges": [
                {"id": "work>wait", "source": "work", "target": "wait", "on": "open"},
                {"id": "wait>after", "source": "wait", "target": "after"},
                {"id": "after>end", "source": "after", "target": "end"},
            ],
        }
    )
    instance = await engine.start("queued")
    evidence.ask("""select holdfast.signal(%s, 'go', '{"n": 1}')""", instance.id)
    evidence.ask("select holdfast.signal(%s, 'open')", instance.id)
    await engine.drain(timeout=30)
    ended = await engine.get(instance.id)
    assert (ended.status, ended.data) == ("completed", {"n": 1})
    assert evidence.ask("select count(*) from holdfast.inbox") == 0


async def test_an_early_event_may_lead_into_a_sub_flow(engine: Engine) -> None:
    engine.register("work", lambda ctx, data: {"child": True})
    await engine.publish(
        {
            "name": "child",
            "entry": "work",
            "nodes": [{"id": "work", "kind": "task", "handler": "work"}, {"id": "end", "kind": "end"}],
            "edges": [{"id": "e", "source": "work", "target": "end"}],
        }
    )
    await engine.publish(
        {
            "name": "parent",
            "entry": "wait",
            "nodes": [
                {"id": "wait", "kind": "wait_event", "wait": {"event": "go", "key": "input.key"}},
                {"id": "child", "kind": "sub_flow", "child": {"flow": "child"}},
                {"id": "end", "kind": "end"},
            ],
            "edges": [
                {"id": "wait>child", "source": "wait", "target": "child"},
                {"id": "child>end", "source": "child", "target": "end"},
            ],
        }
    )
    await engine.signal_key("go", "k")
    parent = await engine.start("parent", {"key": "k"})
    await engine.drain(timeout=30)
    ended = await engine.get(parent.id)
    assert (ended.status, ended.data) == ("completed", {"child": True})


# --- laps and expiry --------------------------------------------------------------------------------------------------


def laps(wait: dict[str, Any]) -> dict[str, Any]:
    """A loop that waits for the same event in every lap."""
    return {
        "name": "laps",
        "entry": "work",
        "nodes": [
            {"id": "work", "kind": "task", "handler": "work"},
            {"id": "wait", "kind": "wait_event", "wait": wait},
            {"id": "more", "kind": "condition"},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "work>wait", "source": "work", "target": "wait"},
            {"id": "wait>more", "source": "wait", "target": "more"},
            {"id": "more>end", "source": "more", "target": "end", "when": "input.last"},
            {"id": "more>work", "source": "more", "target": "work", "priority": 1},
        ],
    }


async def laps_done(engine: Engine, id: str) -> int:
    await engine.drain(timeout=30)
    return len([s for s in await engine.steps(id) if s.name == "wait" and s.status == "completed"])


KEYED = {"event": "go", "key": "context.key"}


@pytest.mark.parametrize("early", [True, False])
async def test_a_loop_takes_an_event_by_key_once(engine: Engine, evidence: Evidence, early: bool) -> None:
    """Whether it came before the wait or while it was open: no later lap takes the same event again."""
    engine.register("work", lambda ctx, data: data)
    await engine.publish(laps(KEYED))
    if early:
        await engine.signal_key("go", "k", {"last": False})
    ids = [(await engine.start("laps", {"key": "k"})).id for _ in range(2)]
    await engine.drain(timeout=30)
    if not early:
        await engine.signal_key("go", "k", {"last": False})
    assert [await laps_done(engine, id) for id in ids] == [1, 1]
    await engine.signal_key("go", "k", {"last": False})
    assert [await laps_done(engine, id) for id in ids] == [2, 2]
    await engine.signal_key("go", "k", {"last": True})
    assert [await laps_done(engine, id) for id in ids] == [3, 3]
    assert {(await engine.get(id)).status for id in ids} == {"completed"}
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0


async def test_several_early_events_by_key_go_lap_by_lap(engine: Engine) -> None:
    engine.register("work", lambda ctx, data: data)
    await engine.publish(laps(KEYED))
    for n in range(3):
        await engine.signal_key("go", "k", {"n": n, "last": n == 2})
    instance = await engine.start("laps", {"key": "k"})
    assert await laps_done(engine, instance.id) == 3
    outputs = [s.output["n"] for s in await engine.steps(instance.id) if s.name == "wait"]
    assert outputs == [0, 1, 2]


async def test_several_early_events_of_an_instance_go_lap_by_lap(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(laps({"event": "go", "early": True}))
    instance = await engine.start("laps")
    await engine.drain(timeout=30)
    for n in range(3):
        await engine.signal(instance.id, "go", {"n": n, "last": n == 2})
    assert evidence.ask("select count(*) from holdfast.inbox") == 3
    engine.register("work", lambda ctx, data: data)
    assert await laps_done(engine, instance.id) == 3
    assert evidence.ask("select count(*) from holdfast.inbox") == 0


@pytest.mark.parametrize("keyed", [True, False])
async def test_an_early_event_no_edge_takes_does_not_hide_the_next(
    engine: Engine, evidence: Evidence, keyed: bool
) -> None:
    """The first does not fit the edge's condition and stays kept as it was; the second does."""
    picky = graph("picky", {"event": "go", "key": "context.key"} if keyed else {"event": "go", "early": True})
    picky["edges"][1]["when"] = "input.fits"
    picky["policy"] = {"data": "context"}
    await engine.publish(picky)
    instance = await engine.start("picky", {"key": "k"})
    await engine.drain(timeout=30)
    for fits in (False, True):
        if keyed:
            await engine.signal_key("go", "k", {"fits": fits})
        else:
            await engine.signal(instance.id, "go", {"fits": fits})
    kept = "select created_at, expires_at from holdfast.inbox order by created_at limit 1"
    before = evidence.rows(kept)
    for name in ("work", "after"):
        engine.register(name, lambda ctx, data: data)
    await engine.drain(timeout=30)
    ended = await engine.get(instance.id)
    assert (ended.status, ended.data["fits"]) == ("completed", True)
    assert evidence.rows(kept) == before


async def test_early_events_expire_in_sight(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(graph("by_instance", {"event": "go", "early": True}))
    async with Engine(engine.dsn, options=Options(keep_early=3600.0)) as brief:
        instance = await brief.start("by_instance", {"n": 1})
        await brief.drain(timeout=30)
        await brief.signal(instance.id, "go", {"n": 1})
        await brief.signal_key("go", "k")
        kept = "select extract(epoch from expires_at - created_at)::int from holdfast."
        assert (evidence.ask(kept + "inbox"), evidence.ask(kept + "key_events")) == (3600, 3600)
        await advance(brief, minutes=61)
        await brief.maintain()
        await brief.drain(timeout=30)
        assert evidence.ask("select count(*) from holdfast.inbox") == 0
        assert evidence.ask("select count(*) from holdfast.key_events") == 0
        [event] = [e for e in await brief.events(instance.id) if e.type == "event_expired"]
        assert event.detail["event"] == "go"
        assert evidence.ask("select state->>'early' from holdfast.instances") is None, "it counts no more than is kept"
        brief.register("work", lambda ctx, data: data)
        await brief.drain(timeout=30)
        assert (await brief.get(instance.id)).waiting_for == "event"


# --- undeclared, by step, while suspended -----------------------------------------------------------------------------

STATES: dict[str, Any] = {
    "name": "states",
    "entry": "work",
    "nodes": [
        {"id": "work", "kind": "task", "handler": "work"},
        {"id": "draft", "kind": "state"},
        {"id": "review", "kind": "state"},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "a", "source": "work", "target": "draft"},
        {"id": "b", "source": "draft", "target": "review", "on": "submit"},
        {"id": "c", "source": "review", "target": "end", "on": "accept"},
        {"id": "d", "source": "review", "target": "draft", "on": "return"},
    ],
}


async def outcomes(engine: Engine, id: str) -> list[str]:
    await engine.drain(timeout=30)
    assert (await engine.rebuild(id, dry_run=True)).differences == [], "replay equals what is stored"
    return [
        s.outcome or s.status for s in await engine.steps(id) if s.name in ("draft", "review", "left", "right", "wait")
    ]


async def test_events_of_states_are_taken_in_the_order_they_came(engine: Engine) -> None:
    await engine.publish(STATES)
    instance = await engine.start("states", {"n": 1})
    for event in ("submit", "return", "submit", "accept"):
        assert (await engine.signal(instance.id, event)).status == "running"
    engine.register("work", lambda ctx, data: data)
    assert await outcomes(engine, instance.id) == ["submit", "return", "submit", "accept"]
    assert (await engine.get(instance.id)).status == "completed"


async def test_an_event_for_one_step_is_kept_for_that_step(engine: Engine) -> None:
    """Two branches wait for the same word; the one that is named has it, whichever asks first."""
    await engine.publish(
        Flow("both")
        .step("work", "work")
        .parallel("fork", Branch().wait_event("left", "go"), Branch().wait_event("right", "go"))
        .build()
    )
    instance = await engine.start("both")
    await engine.signal(instance.id, "go", {"n": 1}, node="right")
    engine.register("work", lambda ctx, data: data)
    assert sorted(await outcomes(engine, instance.id)) == ["go", "waiting"]
    assert [s.name for s in await engine.steps(instance.id) if s.outcome == "go"] == ["right"]


async def test_what_came_while_suspended_counts_with_the_resume(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(STATES)
    engine.register("work", lambda ctx, data: data)
    instance = await engine.start("states", {"n": 1})
    await engine.drain(timeout=30)
    await engine.suspend(instance.id)
    await engine.signal(instance.id, "submit", {"n": 2})
    evidence.ask("select holdfast.signal(%s, 'accept', '{\"n\": 3}')", instance.id)
    await engine.drain(timeout=30)
    assert evidence.ask("select count(*) from holdfast.inbox") == 2
    ended = await engine.resume(instance.id)
    assert (ended.status, ended.data) == ("completed", {"n": 3})
    assert evidence.ask("select count(*) from holdfast.inbox") == 0
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0


async def test_an_event_by_key_waits_for_the_resume_too(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(Flow("keyed").wait_event("there", "pod", key="input.key").build())
    instance = await engine.start("keyed", {"key": "k"})
    await engine.drain(timeout=30)
    await engine.suspend(instance.id)
    await engine.signal_key("pod", "k", {"n": 1})
    await engine.drain(timeout=30)
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
    ended = await engine.resume(instance.id)
    assert (ended.status, ended.data) == ("completed", {"n": 1})


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("event_first", [True, False])
async def test_a_timer_and_an_event_of_a_suspended_instance_count_in_their_order(
    engine: Engine, event_first: bool, keyed: bool
) -> None:
    await engine.publish(
        {
            "name": "dated",
            "entry": "wait",
            "nodes": [
                {
                    "id": "wait",
                    "kind": "wait_event",
                    "wait": {"event": "go", **({"key": "input.key"} if keyed else {})},
                    "deadline": 3600.0,
                },
                {"id": "end", "kind": "end"},
                {"id": "late", "kind": "end"},
            ],
            "edges": [
                {"id": "in_time", "source": "wait", "target": "end"},
                {"id": "too_late", "source": "wait", "target": "late", "on": "timeout"},
            ],
        }
    )
    instance = await engine.start("dated", {"key": "k"})
    await engine.drain(timeout=30)
    await engine.suspend(instance.id)

    async def send() -> None:
        if keyed:
            await engine.signal_key("go", "k")
        else:
            await engine.signal(instance.id, "go")

    if event_first:
        await send()
    await advance(engine, hours=2)
    await engine.drain(timeout=30)
    if not event_first:
        await send()
    await engine.resume(instance.id)
    assert await outcomes(engine, instance.id) == ["go" if event_first else "timeout"]


async def test_one_instance_keeps_a_bounded_number(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(Flow("bounded").step("work", "work").wait_event("go").build())
    instance = await engine.start("bounded")
    await engine.drain(timeout=30)
    evidence.ask("select count(holdfast.signal(%s, 'go')) from generate_series(1, %s)", instance.id, MOST_KEPT)
    await engine.drain(timeout=30)
    with pytest.raises(Conflict, match="EARLY_EVENTS_FULL"):
        await engine.signal(instance.id, "go")
    assert evidence.ask("select count(*) from holdfast.inbox") == MOST_KEPT
    await advance(engine, days=8)
    await engine.maintain()
    await engine.drain(timeout=30)
    assert (await engine.signal(instance.id, "go")).status == "running"
    assert (await engine.rebuild(instance.id, dry_run=True)).differences == []


@pytest.mark.parametrize("later", [{"delay": 60}, {"at": datetime(2090, 1, 1, tzinfo=UTC)}])
async def test_an_event_for_later_cannot_be_for_now(engine: Engine, later: dict[str, Any]) -> None:
    await engine.publish(Flow("parcel").wait_event("go").build())
    instance = await engine.start("parcel")
    with pytest.raises(Refused, match="OPTION_MISPLACED"):
        await engine.signal(instance.id, "go", early=False, **later)
