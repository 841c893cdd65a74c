"""Chapter 4 of the text: the number of calls, what is counted, and what may not be repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shop import ALWAYS, Shop

from holdfast import DoNotRetry, Retry, Undo

pytestmark = pytest.mark.anyio


# --- 4.1 the number of calls ------------------------------------------------------------------------------------------


async def test_max_retries_1_is_one_call_only(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=1)))
    assert shop.log == ["a"]


async def test_max_retries_3_is_up_to_three_calls(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=3)))
    assert shop.log == ["a"] * 3


async def test_retries_end_with_the_first_success(shop: Shop) -> None:
    shop.fails = {"a": 1}
    story = await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=3)))
    assert (story.status, shop.log) == ("completed", ["a"] * 2)


@pytest.mark.parametrize("retries", [0, -5])
async def test_max_retries_below_1_means_1(shop: Shop, retries: int) -> None:
    """Semantics 8."""
    shop.fails = {"a": ALWAYS, "una": ALWAYS}
    await shop.run(
        shop.flow().step(
            "a", "do", undo=Undo("do", name="una", retry=Retry(attempts=retries)), retry=Retry(attempts=retries)
        )
    )
    assert shop.log == ["a", "una"]


async def test_a_flow_sets_the_default_for_its_steps_and_compensations(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": ALWAYS}
    await shop.run(shop.flow(attempts=2).step("a", "do", undo=Undo("do", name="una")))
    assert shop.log == ["a", "a", "una", "una"]


async def test_a_compensation_retries_by_the_same_rule(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": 2}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=3))))
    assert (shop.log, story["a"]) == (["a", *["una"] * 3], "rolled_back")


async def test_a_pause_between_the_calls_of_a_compensation_is_kept(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": 1}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=2, delay=60))))
    assert (shop.log, story.status) == (["a", "una"], "rolling_back")
    await shop.pass_time(61)
    assert (shop.log, (await shop.look(story.id)).status) == (["a", "una", "una"], "failed")


# --- 4.2 what is counted ----------------------------------------------------------------------------------------------


async def test_retry_count_is_the_number_of_calls_of_the_step(shop: Shop) -> None:
    shop.fails = {"a": 2}
    assert (await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=5)))).step("a").attempts == 3


async def test_compensation_retry_count_is_the_number_of_calls_of_the_compensation(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": 2}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=5))))
    assert (story.step("a").attempts, story.step("una").attempts) == (1, 3)


async def test_the_count_rises_before_the_handler_is_called(shop: Shop) -> None:
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do", retry=Retry(attempts=2)))
    await shop.begun("a")
    assert (await shop.look(id)).step("a").attempts == 1
    shop.let_go("a")
    await shop.over(id)


# --- 4.3 idempotency --------------------------------------------------------------------------------------------------


async def test_every_step_is_idempotent_by_default(shop: Shop) -> None:
    shop.fails = {"a": 1}
    assert (await shop.run(shop.flow().step("a", "do", retry=Retry(attempts=2)))).status == "completed"


async def test_a_non_idempotent_step_is_called_exactly_once_even_on_failure(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    await shop.run(shop.flow(attempts=5).step("a", "do", idempotent=False))
    assert shop.log == ["a"]


async def test_a_non_idempotent_compensation_is_called_exactly_once_even_on_failure(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS, "una": ALWAYS}
    story = await shop.run(
        shop.flow(attempts=5).step("a", "do", undo=Undo("do", name="una", idempotent=False), retry=Retry(attempts=1))
    )
    assert (shop.log, len(story.letters)) == (["a", "una"], 1)


async def test_the_idempotency_key_is_stable_over_retries(shop: Shop) -> None:
    shop.fails = {"a": 2, "b": ALWAYS, "una": 2}
    flow = (
        shop.flow()
        .step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=3)), retry=Retry(attempts=3))
        .step("b", "do")
    )
    await shop.run(flow)
    assert [len(shop.keys[name]) for name in ("a", "una")] == [3, 3]
    assert [len(set(shop.keys[name])) for name in ("a", "una")] == [1, 1]
    assert shop.keys["a"][0] != shop.keys["una"][0]


async def test_a_pause_of_the_instance_gives_no_further_call(shop: Shop) -> None:
    """What fails while the instance is paused has failed: the resume begins the rollback."""
    shop.fails = {"b": ALWAYS}
    shop.hold("b")
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do", idempotent=False)
    id = await shop.start(flow)
    await shop.begun("b")
    await shop.engine.suspend(id)
    shop.let_go("b")
    await shop.settle()
    story = await shop.look(id)
    assert (story.status, story["a"], story["b"]) == ("suspended", "completed", "failed")
    await shop.engine.resume(id)
    story = await shop.over(id)
    assert (story.status, story.runs("b"), shop.log) == ("failed", ["rolled_back"], ["a", "b", "una"])


# --- what counts as a failure -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [ValueError("no"), StopIteration("no"), SystemExit(3), asyncio.CancelledError("no"), BaseException("no")],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize("handler", ["do", "do_plainly"])
async def test_whatever_a_handler_raises_is_an_ordinary_failure(shop: Shop, failure: Any, handler: str) -> None:
    shop.raises = {"a": failure}
    story = await shop.run(shop.flow().step("a", handler, undo=Undo("do", name="una"), retry=Retry(attempts=2)))
    assert (shop.log, story.status, story["a"]) == (["a", "a", "una"], "failed", "rolled_back")


async def test_a_timeout_is_an_ordinary_failure(shop: Shop) -> None:
    shop.hold("a")
    id = await shop.start(
        shop.flow().step("a", "do", undo=Undo("do", name="una"), retry=Retry(attempts=2), timeout=0.05)
    )
    story = await shop.over(id)
    assert (shop.log, story["a"]) == (["a", "a", "una"], "rolled_back")
    assert story.step("a").error["code"] == "STEP_TIMEOUT"


async def test_a_handler_can_say_that_another_call_would_not_help(shop: Shop) -> None:
    shop.raises = {"a": DoNotRetry("the account is closed"), "una": DoNotRetry("neither")}
    await shop.run(
        shop.flow().step("a", "do", undo=Undo("do", name="una", retry=Retry(attempts=5)), retry=Retry(attempts=5))
    )
    assert shop.log == ["a", "una"]
