"""Chapter 3 of the text: each row of its transition rules, told by the record the engine leaves."""

from __future__ import annotations

import psycopg
import pytest
from shop import ALWAYS, Shop, Story

from holdfast import Branch, Retry, Undo
from holdfast.core.model.status import STEP_SHORTCUTS, STEP_TRANSITIONS, StepStatus
from holdfast.store.reads.instances import Step
from running import until

pytestmark = pytest.mark.anyio


async def test_pending_to_running_when_the_engine_starts_execution(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    shop.hold("unb", "una")
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do", undo=Undo("do", name="unb"))
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
    story = await shop.run(shop.flow(dlq=True).step("a", "do", retry=Retry(attempts=2)))
    assert (story["a"], story.status, shop.log) == ("paused", "dlq", ["a", "a"])


async def test_failed_to_compensation_when_the_engine_begins_rollback(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    shop.hold("una")
    id = await shop.start(shop.flow().step("a", "do", undo=Undo("do", name="una")))
    await shop.begun("una")
    assert (await shop.look(id))["a"] == "compensation"
    shop.let_go("una")
    await shop.over(id)


async def _compensated(shop: Shop, fails: int) -> Story:
    shop.fails = {"a": ALWAYS, "una": fails}
    return await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=2))))


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
    id = await shop.start(shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do"))
    await shop.begun("una")
    assert (await shop.look(id))["a"] == "compensation"
    shop.let_go("una")
    assert (await shop.over(id))["a"] == "rolled_back"


async def _one_of_each(shop: Shop) -> dict[str, Step]:
    """A step in each status there is, of three instances that stand still or are over."""
    ids = [await _standing(shop), await _going_back(shop), await _rejected(shop)]
    return {row.status: row for id in ids for row in await shop.engine.steps(id)}


async def _standing(shop: Shop) -> str:
    """completed, cancelled, confirmed, waiting, waiting_decision, paused, superseded, running"""
    race = Branch().fork("race", _step("winner"), _step("loser")).join("won", "any")
    person = Branch().human("yes").wait_event("event")
    shop.fails = {"broken": 1, "again": 1}
    shop.hold("loser")
    flow = shop.flow(version=1, dlq=True)
    flow = flow.fork("f", person, _step("broken"), _step("again"), race, Branch().human("ask")).join("j")
    id = await shop.start(flow)
    await until(lambda: _has(shop, id, again="paused", broken="paused", loser="cancelled"))
    [letter] = [letter for letter in await shop.engine.dead_letters(id) if letter.envelope["node"] == "again"]
    shop.hold("again")
    await shop.engine.requeue(letter.id)
    await shop.engine.decide(await shop.task(id, "yes"), by="ann", decision="confirmed")
    await until(lambda: _has(shop, id, again="running", event="waiting"))
    return id


async def _going_back(shop: Shop) -> str:
    """rolled_back, failed, compensation, running, pending"""
    shop.fails = {"d": ALWAYS, "unc": ALWAYS}
    shop.hold("unb")
    flow = shop.flow(version=2)
    for name in "abc":
        flow = flow.step(name, "do", undo=Undo("do", name=f"un{name}"))
    id = await shop.start(flow.step("d", "do"))
    await until(lambda: _has(shop, id, unb="running"))
    return id


async def _rejected(shop: Shop) -> str:
    """rejected, skipped"""
    later = Branch().step("later", "do", delay=3600)
    id = await shop.start(shop.flow(version=3).fork("f", Branch().human("no"), later).join("j"))
    await until(lambda: _has(shop, id, no="waiting_decision"))
    await shop.engine.decide(await shop.task(id), by="ann", decision="rejected")
    await shop.over(id)
    return id


def _step(name: str) -> Branch:
    return Branch().step(name, "do")


async def _has(shop: Shop, id: str, **statuses: str) -> bool:
    return statuses.items() <= {row.name: row.status for row in await shop.engine.steps(id)}.items()


async def test_the_database_refuses_every_other_transition(shop: Shop) -> None:
    """Semantics 7: enforced by trigger. One row of each status is tried with every status it may not take."""
    rows = await _one_of_each(shop)
    assert set(rows) == set(StepStatus)
    async with await psycopg.AsyncConnection.connect(shop.engine.dsn, autocommit=True) as connection:
        for was, row in rows.items():
            allowed = STEP_TRANSITIONS[StepStatus(was)] | STEP_SHORTCUTS.get(StepStatus(was), frozenset()) | {was}
            for status in set(StepStatus) - allowed:
                with pytest.raises(psycopg.Error, match=f"may not go from {was} to {status}"):
                    await connection.execute("update holdfast.steps set status = %s where id = %s", (status, row.id))
    shop.let_go("again", "unb")
