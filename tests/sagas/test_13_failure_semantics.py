"""Chapter 13 of the text: every scenario in both of its columns, and the four promises of chapter 12."""

from __future__ import annotations

from typing import Any

import pytest
from shop import ALWAYS, Shop, Story

from holdfast import Branch, Retry, Undo

pytestmark = pytest.mark.anyio

BOTH_MODES = pytest.mark.parametrize("dlq", [False, True], ids=["classic", "dlq"])


async def failing(shop: Shop, *, dlq: bool, save_point: bool = False, **options: Any) -> Story:
    """`first` and `second` succeed, `bad` fails; the first two can be undone."""
    shop.fails = {"bad": ALWAYS, **shop.fails}
    flow = shop.flow(dlq=dlq).step("first", "do", undo=Undo("do", name="unfirst"))
    if save_point:
        flow = flow.save_point("point")
    flow = flow.step("second", "do", undo=Undo("do", name="unsecond")).step("bad", "do", **options)
    return await shop.run(flow)


# --- handler error ----------------------------------------------------------------------------------------------------


async def test_handler_error_classic_the_step_fails_and_compensation_starts(shop: Shop) -> None:
    story = await failing(shop, dlq=False)
    assert story.about("bad") == ["step_started", "step_failed"]
    assert shop.log == ["first", "second", "bad", "unsecond", "unfirst"]


async def test_handler_error_dlq_the_step_pauses_with_a_record(shop: Shop) -> None:
    story = await failing(shop, dlq=True)
    assert (story["bad"], story.status, len(story.letters)) == ("paused", "dlq", 1)


# --- compensation error -----------------------------------------------------------------------------------------------


async def test_compensation_error_classic_the_step_remains_in_compensation_and_the_counter_rises(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": 1}
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=2, delay=60)))
    story = await shop.run(flow)
    assert (story["a"], story["una"], story.step("una").attempts) == ("compensation", "running", 1)
    await shop.pass_time(61)
    story = await shop.look(story.id)
    assert (story["a"], story.step("una").attempts) == ("rolled_back", 2)


async def test_compensation_error_dlq_is_not_applicable(shop: Shop) -> None:
    story = await failing(shop, dlq=True)
    assert (story.noted("compensation_started"), shop.log) == ([], ["first", "second", "bad"])


# --- retries exhausted ------------------------------------------------------------------------------------------------


async def test_retries_exhausted_classic_rolls_back_to_the_save_point(shop: Shop) -> None:
    story = await failing(shop, dlq=False, save_point=True, retry=Retry(attempts=3))
    assert shop.log == ["first", "second", *["bad"] * 3, "unsecond"]
    assert (story["first"], story["second"]) == ("completed", "rolled_back")


async def test_retries_exhausted_dlq_pauses_and_leaves_nothing_queued(shop: Shop) -> None:
    story = await failing(shop, dlq=True, retry=Retry(attempts=3))
    await shop.pass_time(86_400)
    assert (story["bad"], story.status, shop.log.count("bad")) == ("paused", "dlq", 3)


# --- no compensation defined ------------------------------------------------------------------------------------------


async def test_no_compensation_defined_classic_the_step_is_rolled_back(shop: Shop) -> None:
    story = await failing(shop, dlq=False)
    assert (story["bad"], "unbad" in story) == ("rolled_back", False)


async def test_no_compensation_defined_dlq_the_step_pauses(shop: Shop) -> None:
    story = await failing(shop, dlq=True)
    assert (story["bad"], story.status) == ("paused", "dlq")


# --- save point found -------------------------------------------------------------------------------------------------


async def test_save_point_found_classic_rollback_stops_there(shop: Shop) -> None:
    story = await failing(shop, dlq=False, save_point=True)
    assert (story["first"], story["point"], story["second"]) == ("completed", "completed", "rolled_back")
    [planned] = story.noted("rollback_planned")
    assert planned.detail == {"compensations": 1, "save_point": "point"}


async def test_save_point_found_dlq_is_not_applicable(shop: Shop) -> None:
    story = await failing(shop, dlq=True, save_point=True)
    assert (story["second"], story.noted("rollback_started")) == ("completed", [])


# --- cancel and abort -------------------------------------------------------------------------------------------------


async def stopped(shop: Shop, operation: str, *, dlq: bool) -> Story:
    shop.hold("second")
    flow = shop.flow(dlq=dlq).step("first", "do", undo=Undo("do", name="unfirst")).step("second", "do")
    id = await shop.start(flow)
    await shop.begun("second")
    await getattr(shop.engine, operation)(id)
    await shop.over(id)
    await shop.settle()
    return await shop.look(id)


@BOTH_MODES
async def test_cancel_operation_the_step_is_skipped_and_compensation_executed(shop: Shop, dlq: bool) -> None:
    story = await stopped(shop, "cancel", dlq=dlq)
    assert (story.status, story["second"], story["first"]) == ("cancelled", "skipped", "rolled_back")
    assert shop.log == ["first", "second", "unfirst"]


@BOTH_MODES
async def test_abort_operation_the_step_is_skipped_without_compensation(shop: Shop, dlq: bool) -> None:
    story = await stopped(shop, "abort", dlq=dlq)
    assert (story.status, story["second"], story["first"]) == ("aborted", "skipped", "completed")
    assert shop.log == ["first", "second"]


# --- fork and join ----------------------------------------------------------------------------------------------------


def _forked(shop: Shop, *, dlq: bool) -> Any:
    branches = Branch().step("good", "do", undo=Undo("do", name="ungood")), Branch().step("bad", "do")
    return shop.flow(dlq=dlq).fork("f", *branches).join("j").step("after", "do")


async def test_fork_and_join_classic_standard_behaviour(shop: Shop) -> None:
    shop.fails = {"bad": ALWAYS}
    story = await shop.run(_forked(shop, dlq=False))
    assert (story.status, "j" in story, "after" in story) == ("failed", False, False)
    assert story["good"] in ("rolled_back", "skipped")


async def test_fork_and_join_dlq_branches_complete_and_the_join_waits(shop: Shop) -> None:
    """Semantics 8: the join has no row while it waits; its scope does."""
    shop.fails = {"bad": ALWAYS}
    story = await shop.run(_forked(shop, dlq=True))
    assert (story.status, story["good"], story["bad"], "j" in story) == ("dlq", "completed", "paused", False)


# --- requeue ----------------------------------------------------------------------------------------------------------


async def test_requeue_classic_is_not_applicable(shop: Shop) -> None:
    assert (await failing(shop, dlq=False)).letters == []


async def test_requeue_dlq_the_instance_runs_and_the_join_goes_on(shop: Shop) -> None:
    shop.fails = {"bad": 1}
    story = await shop.run(_forked(shop, dlq=True))
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    story = await shop.look(story.id)
    assert (story.status, story["j"], shop.log[-1]) == ("completed", "completed", "after")


# --- chapter 12 -------------------------------------------------------------------------------------------------------


async def test_promise_the_same_input_gives_the_same_transitions(shop: Shop) -> None:
    shop.fails = {"bad": ALWAYS}
    flow = (
        shop.flow()
        .step("a", "do", undo=Undo("do", name="una"), retry=Retry(attempts=2))
        .step("bad", "do", retry=Retry(attempts=2))
    )
    first, second = await shop.run(flow, {"n": 1}), await shop.run(input={"n": 1})
    assert [(e.type, e.node) for e in first.events] == [(e.type, e.node) for e in second.events]
    assert first.statuses == second.statuses


async def test_promise_retries_and_compensations_are_predictable(shop: Shop) -> None:
    shop.fails = {"a": 1, "una": 1, "bad": ALWAYS}
    flow = (
        shop.flow()
        .step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=2)), retry=Retry(attempts=2))
        .step("bad", "do", retry=Retry(attempts=3))
    )
    await shop.run(flow)
    assert shop.log == ["a", "a", "bad", "bad", "bad", "una", "una"]


async def test_promise_non_idempotent_steps_execute_at_most_once(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    await shop.run(shop.flow(attempts=9).step("a", "do", idempotent=False))
    assert shop.log == ["a"]


async def test_promise_replays_are_safe(shop: Shop) -> None:
    """The snapshot made anew from the rows is the one that is there."""
    story = await failing(shop, dlq=True)
    rebuilt = await shop.engine.rebuild(story.id, dry_run=True)
    assert (rebuilt.differences, rebuilt.missing) == ([], [])
