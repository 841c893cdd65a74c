"""Chapter 6 of the text: the queue, several services, aging, the record of events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from shop import ALWAYS, Shop, Story

from holdfast import Context, Engine, Flow, Retry, Undo
from holdfast.runtime.commit.options import Options
from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio


# --- 6.1 the queue ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def queued(shop: Shop) -> AsyncIterator[dict[str, Any]]:
    """The row of a step that waits for a service."""
    flow = shop.flow().step("a", f"{shop.name}.elsewhere", priority=30)
    id = (await shop.run(flow)).id
    async with await psycopg.AsyncConnection.connect(shop.engine.dsn, autocommit=True) as connection:
        found = await connection.execute("select to_jsonb(w) from holdfast.work w where instance_id = %s", (id,))
        [row] = [row[0] for row in await found.fetchall()]
    step = (await shop.look(id)).step("a")
    yield {**row, "instance": id, "step": step.id, "opened": step.created_at}
    await shop.engine.abort(id)


async def test_queue_field_step_id(queued: dict[str, Any]) -> None:
    assert queued["step_id"] == queued["step"]


async def test_queue_field_instance_id(queued: dict[str, Any]) -> None:
    assert queued["instance_id"] == queued["instance"]


async def test_queue_fields_priority_and_scheduled_at(queued: dict[str, Any]) -> None:
    """One column orders the queue: the moment at which the step outweighs a new one of priority 100."""
    ripe = datetime.fromisoformat(queued["ripe_at"])
    assert timedelta(0) <= ripe - queued["opened"] - timedelta(seconds=(100 - 30) / 0.5) < timedelta(seconds=30)


async def test_queue_fields_attempted_at_and_attempted_by_are_empty_until_a_claim(queued: dict[str, Any]) -> None:
    assert (queued["worker"], queued["deadline_at"]) == (None, None)


async def test_queue_field_created_at(queued: dict[str, Any]) -> None:
    """That of its step, which is queued by the commit that opens it."""
    assert datetime.fromisoformat(queued["step_created_at"]) == queued["opened"]


async def test_queue_field_attempted_by_is_the_worker_that_claimed(shop: Shop) -> None:
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do"))
    await shop.begun("a")
    async with await psycopg.AsyncConnection.connect(shop.engine.dsn, autocommit=True) as connection:
        question = "select w.worker = d.id from holdfast.work w, holdfast.workers d where w.instance_id = %s"
        found = await connection.execute(question, (id,))
        assert (True,) in await found.fetchall()
    shop.let_go("a")
    await shop.over(id)


# --- 6.2 several services ---------------------------------------------------------------------------------------------


@pytest.fixture
async def service(shop: Shop) -> AsyncIterator[Engine]:
    """Another service on the same database; its worker is the test's own to start."""
    async with Engine(shop.engine.dsn) as service:
        yield service


async def test_each_service_registers_only_the_handlers_it_can_execute(shop: Shop, service: Engine) -> None:
    by: dict[str, str] = {}

    async def ship(ctx: Context, data: Any) -> Any:
        by[ctx.step] = "shipping"
        return data

    service.register(f"{shop.name}.ship", ship)
    flow = shop.flow().step("pay", "do").step("ship", f"{shop.name}.ship").step("thank", "do")
    async with service.worker(scan=1.0):
        id = await shop.start(flow)
        assert (await shop.over(id)).status == "completed"
    assert (shop.log, by) == (["pay", "thank"], {"ship": "shipping"})


async def test_a_step_without_a_handler_here_goes_back_to_the_queue_and_is_not_failed(shop: Shop) -> None:
    id = (await shop.run(shop.flow().step("pay", "do").step("ship", f"{shop.name}.ship"))).id
    story = await shop.look(id)
    assert (story.status, story["ship"], story.step("ship").attempts, shop.log) == ("running", "running", 0, ["pay"])
    await shop.engine.abort(id)


async def test_a_service_that_comes_later_picks_it_up(shop: Shop, service: Engine) -> None:
    id = (await shop.run(shop.flow().step("ship", f"{shop.name}.ship").step("thank", "do"))).id

    async def ship(ctx: Context, data: Any) -> str:
        return "shipped"

    service.register(f"{shop.name}.ship", ship)
    async with service.worker():
        story = await shop.over(id)
    assert (story.status, shop.data["thank"]) == ("completed", "shipped")


async def test_a_missing_handler_of_a_compensation_is_waited_for_too(shop: Shop, service: Engine) -> None:
    shop.fails = {"b": ALWAYS}
    undone: list[str] = []
    flow = shop.flow().step("a", "do", undo=Undo(f"{shop.name}.undo", name="una")).step("b", "do")
    story = await shop.run(flow)
    assert (story.status, story["a"]) == ("rolling_back", "compensation")

    async def undo(ctx: Context, data: Any) -> None:
        undone.append(ctx.step)

    service.register(f"{shop.name}.undo", undo)
    async with service.worker():
        story = await shop.over(story.id)
    assert (story.status, story["a"], undone) == ("failed", "rolled_back", ["una"])


async def skipped(shop: Shop, service: Engine) -> Story:
    """An instance whose step a service has seen that has no handler for it."""
    id = (await shop.run(shop.flow().step("ship", f"{shop.name}.ship"))).id
    async with service.worker(missing_handler_cooldown=0.05, missing_handler_jitter=0.2):

        async def noted() -> bool:
            return bool((await shop.look(id)).noted("step_skipped_missing_handler"))

        await until(noted)
    story = await shop.look(id)
    await shop.engine.abort(id)
    return story


async def test_a_missing_handler_is_recorded_as_an_event(shop: Shop, service: Engine) -> None:
    """With a cooldown, jitter and throttled warnings; runtime/test_missing_handlers.py tells those apart."""
    story = await skipped(shop, service)
    event = story.noted("step_skipped_missing_handler")[0]
    assert (event.node, event.detail["handler"], story.status) == ("ship", f"{shop.name}.ship", "running")


# --- 6.3 aging --------------------------------------------------------------------------------------------------------


async def order_of(shop: Shop, rate: float | None, *arrivals: tuple[int, float]) -> list[int]:
    """Steps of these priorities come one after another, each so many seconds after the one before; who goes first?"""
    order: list[int] = []
    handler = f"{shop.name}.aged"

    async def aged(ctx: Context, data: Any) -> None:
        order.append(data["priority"])

    async with Engine(shop.engine.dsn, options=Options(aging=rate)) as enqueuing, enqueuing.worker():
        for priority, pause in arrivals:
            await advance(enqueuing, seconds=pause)
            await enqueuing.publish(Flow(f"{shop.name}.{priority}").step("a", handler, priority=priority).build())
            await enqueuing.start(f"{shop.name}.{priority}", {"priority": priority})
            await enqueuing.drain(timeout=30)  # it is in the queue before the clock goes on
    async with Engine(shop.engine.dsn) as working:
        working.register(handler, aged)
        async with working.worker(concurrency=1, claim=1, capacity=1):
            await until(lambda: len(order) == len(arrivals))
    return order


async def test_aging_priority_10_is_effectively_60_after_100_seconds(shop: Shop) -> None:
    """min(100, 10 + floor(100 * 0.5)) = 60: ahead of a new 57, behind a new 63."""
    assert await order_of(shop, 0.5, (10, 0), (57, 100), (63, 0)) == [63, 10, 57]


async def test_aging_priority_10_is_effectively_100_after_180_seconds(shop: Shop) -> None:
    """min(100, 10 + floor(180 * 0.5)) = 100: ahead of everything that comes later."""
    assert await order_of(shop, 0.5, (10, 0), (100, 181)) == [10, 100]


async def test_aging_rate_is_configurable(shop: Shop) -> None:
    assert await order_of(shop, 2.0, (10, 0), (50, 25)) == [10, 50]


async def test_without_aging_priority_is_strict(shop: Shop) -> None:
    assert await order_of(shop, None, (10, 0), (50, 86_400)) == [50, 10]


async def test_equal_priorities_are_served_in_the_order_they_came(shop: Shop) -> None:
    assert await order_of(shop, 0.5, (52, 0), (51, 2.5)) == [52, 51]


# --- 6.4 events -------------------------------------------------------------------------------------------------------


async def test_event_step_started(shop: Shop) -> None:
    [event] = (await shop.run(shop.flow().step("a", "do"))).noted("step_started")
    assert (event.node, event.token) == ("a", "0@0")


async def test_event_step_failed(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    [event] = (await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=2)))).noted("step_failed")
    assert (event.node, event.detail["message"], event.detail["calls"]) == ("a", "a does not work", 2)


async def test_event_compensation_started(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una")))
    [event] = story.noted("compensation_started")
    assert (event.node, event.detail["undoes"]) == ("una", story.step("a").id.replace("-", ""))


async def test_event_compensation_retry(shop: Shop) -> None:
    """Called `compensation_retried` here, with the number of calls so far."""
    shop.fails = {"a": ALWAYS, "una": 2}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=3))))
    assert [event.detail["calls"] for event in story.noted("compensation_retried")] == [1, 2]


async def test_event_compensation_success(shop: Shop) -> None:
    """Called `compensation_completed` here."""
    shop.fails = {"a": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una")))
    assert [event.node for event in story.noted("compensation_completed")] == ["una"]


async def test_event_compensation_success_after_retries(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": 2}
    flow = (
        shop.flow()
        .step("zero", "do", undo=Undo("do", name="unzero"))
        .step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=3)))
    )
    story = await shop.run(flow)
    done = story.noted("compensation_completed")
    assert [(event.node, event.detail.get("calls")) for event in done] == [("una", 3), ("unzero", None)]


async def test_event_compensation_max_retries_exceeded(shop: Shop) -> None:
    """Called `compensation_failed` here; it names the dead letter."""
    shop.fails = {"a": ALWAYS, "una": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=2))))
    [event] = story.noted("compensation_failed")
    assert (event.node, event.detail["letter"]) == ("una", story.letters[0].id.replace("-", ""))
    assert (event.detail["calls"], event.detail["message"]) == (2, "una does not work")


async def test_event_step_skipped_missing_handler(shop: Shop, service: Engine) -> None:
    """Which handler is missing in which queue, and for how long by then; nothing has been called."""
    story = await skipped(shop, service)
    event = story.noted("step_skipped_missing_handler")[0]
    assert (event.node, event.token, event.actor) == ("ship", "0@0", "system")
    assert set(event.detail) == {"handler", "queue", "waiting_seconds"}
    assert (event.detail["handler"], event.detail["queue"].endswith(f"{shop.name}.ship")) == (f"{shop.name}.ship", True)
    assert event.detail["waiting_seconds"] >= 0
    assert (story["ship"], story.step("ship").attempts) == ("running", 0)


async def test_event_fields(shop: Shop) -> None:
    """instance_id by the question, step_name, status by the type, retry_count, error, timestamp."""
    shop.fails = {"a": 1}
    story = await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=2)))
    [event] = story.noted("step_retried")
    assert (event.node, event.detail["calls"], event.detail["message"]) == ("a", 1, "a does not work")
    assert event.created_at >= story.instance.created_at  # type: ignore[operator]
