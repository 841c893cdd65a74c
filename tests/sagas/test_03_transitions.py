"""Chapter 3 of the text: each row of its transition rules, told by the record the engine leaves."""

from __future__ import annotations

import psycopg
import pytest
from shop import ALWAYS, Shop, Story

from holdfast.core.status import STEP_TRANSITIONS, StepStatus

pytestmark = pytest.mark.anyio


async def test_pending_to_running_when_the_engine_starts_execution(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    shop.hold("unb", "una")
    flow = shop.flow().step("a", "do").on_failure("una", "do").step("b", "do").on_failure("unb", "do")
    id = await shop.start(flow)
    await shop.begun("unb")
    before = await shop.look(id)
    shop.let_go("unb")
    await shop.begun("una")
    assert (before["una"], (await shop.look(id))["una"]) == ("pending", "running")
    shop.let_go("una")
    await shop.over(id)


async def test_running_to_completed_when_the_handler_succeeds(shop: Shop) -> None:
    story = await shop.run(shop.flow().step("a", "do"))
    assert (story["a"], story.about("a")) == ("completed", ["step_started", "step_completed"])


async def test_running_to_failed_when_the_handler_returns_an_error_in_classic_mode(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do"))
    assert story.about("a") == ["step_started", "step_failed"]
    assert story.step("a").outcome == "error"


async def test_running_to_paused_when_retries_are_exhausted_in_dlq_mode(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    story = await shop.run(shop.flow(dlq=True).step("a", "do", retries=2))
    assert (story["a"], story.status, shop.log) == ("paused", "dlq", ["a", "a"])


async def test_failed_to_compensation_when_the_engine_begins_rollback(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    shop.hold("una")
    id = await shop.start(shop.flow().step("a", "do").on_failure("una", "do"))
    await shop.begun("una")
    assert (await shop.look(id))["a"] == "compensation"
    shop.let_go("una")
    await shop.over(id)


async def _compensated(shop: Shop, fails: int) -> Story:
    shop.fails = {"a": ALWAYS, "una": fails}
    return await shop.run(shop.flow().step("a", "do").on_failure("una", "do", retries=2))


async def test_compensation_to_rolled_back_when_it_succeeds(shop: Shop) -> None:
    story = await _compensated(shop, fails=1)
    assert (story["a"], story.about("una")[-1]) == ("rolled_back", "compensation_completed")


async def test_compensation_to_failed_when_it_exhausted_all_retries(shop: Shop) -> None:
    story = await _compensated(shop, fails=ALWAYS)
    assert (story["a"], story.about("una")[-1]) == ("failed", "compensation_failed")


async def test_paused_to_pending_by_a_requeue(shop: Shop) -> None:
    """Semantics 4: the paused row stays as `superseded`, a new row runs in its place."""
    shop.fails = {"a": 1}
    story = await shop.run(shop.flow(dlq=True).step("a", "do"))
    shop.hold("a")
    await shop.engine.requeue(story.letters[0].id)
    await shop.begun("a")
    assert (await shop.look(story.id)).runs("a") == ["superseded", "running"]
    shop.let_go("a")
    assert (await shop.over(story.id)).runs("a") == ["superseded", "completed"]


async def test_completed_to_compensation_and_rolled_back(shop: Shop) -> None:
    """Semantics 7: what had been completed goes the same way as what failed."""
    shop.fails = {"b": ALWAYS}
    shop.hold("una")
    id = await shop.start(shop.flow().step("a", "do").on_failure("una", "do").step("b", "do"))
    await shop.begun("una")
    assert (await shop.look(id))["a"] == "compensation"
    shop.let_go("una")
    assert (await shop.over(id))["a"] == "rolled_back"


async def test_the_database_refuses_every_other_transition(shop: Shop) -> None:
    """Semantics 7: enforced by trigger. One row of each status is tried with every status it may not take."""
    shop.fails = {"b": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do").step("b", "do"))
    [row] = [row for row in story.rows if row.name == "a"]
    async with await psycopg.AsyncConnection.connect(shop.engine.dsn, autocommit=True) as connection:
        for status in set(StepStatus) - STEP_TRANSITIONS[StepStatus.ROLLED_BACK] - {StepStatus.ROLLED_BACK}:
            with pytest.raises(psycopg.Error):
                await connection.execute("update holdfast.steps set status = %s where id = %s", (status, row.id))
