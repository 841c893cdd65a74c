"""Chapter 5 of the text: compensation and rollback."""

from __future__ import annotations

import pytest
from shop import ALWAYS, Shop

from holdfast import Branch, Flow, Retry, Undo

pytestmark = pytest.mark.anyio


# --- 5.1 undo ---------------------------------------------------------------------------------------------------------


async def test_the_compensation_is_not_enqueued_for_normal_execution(shop: Shop) -> None:
    story = await shop.run(shop.flow().step("charge", "do", undo=Undo("do", name="refund")).step("ship", "do"))
    assert (story.status, shop.log, "refund" in story) == ("completed", ["charge", "ship"], False)


async def test_rollback_reads_the_handler_and_the_retries_of_the_failed_step(shop: Shop) -> None:
    shop.fails = {"charge": ALWAYS, "refund": 2}
    story = await shop.run(shop.flow().step("charge", "do", undo=Undo("do", name="refund", retry=Retry(attempts=3))))
    assert shop.log == ["charge", "refund", "refund", "refund"]
    assert (story["charge"], story.step("refund").kind) == ("rolled_back", "compensate")


async def test_the_original_step_is_in_compensation_while_its_compensation_runs(shop: Shop) -> None:
    shop.fails = {"charge": ALWAYS}
    shop.hold("refund")
    id = await shop.start(shop.flow().step("charge", "do", undo=Undo("do", name="refund")))
    await shop.begun("refund")
    during = await shop.look(id)
    assert (during.status, during["charge"], during["refund"]) == ("rolling_back", "compensation", "running")
    shop.let_go("refund")
    await shop.over(id)


async def test_a_compensation_that_succeeds_leaves_its_step_rolled_back(shop: Shop) -> None:
    shop.fails = {"charge": ALWAYS}
    story = await shop.run(shop.flow().step("charge", "do", undo=Undo("do", name="refund")))
    assert (story.status, story["charge"], story["refund"]) == ("failed", "rolled_back", "completed")


async def test_a_compensation_out_of_calls_leaves_its_step_failed(shop: Shop) -> None:
    shop.fails = {"charge": ALWAYS, "refund": ALWAYS}
    story = await shop.run(shop.flow().step("charge", "do", undo=Undo("do", name="refund", retry=Retry(attempts=2))))
    assert (story.status, story["charge"], story["refund"]) == ("failed", "failed", "failed")
    assert [letter.source for letter in story.letters] == ["compensation"]


async def test_a_compensation_gets_the_input_and_the_output_of_its_step(shop: Shop) -> None:
    """Semantics 8: what was done is handed to what undoes it; a step that failed has no output."""
    shop.fails = {"ship": ALWAYS}
    flow = (
        shop.flow()
        .step("charge", "do", undo=Undo("do", name="refund"))
        .step("ship", "do", undo=Undo("do", name="unship"))
    )
    await shop.run(flow, {"amount": 5})
    assert shop.data["refund"] == {"input": {"amount": 5}, "output": {"by": "charge"}}
    assert shop.data["unship"] == {"input": {"by": "charge"}, "output": None}


# --- 5.2 the chain ----------------------------------------------------------------------------------------------------


async def test_the_chain_ends_at_the_nearest_save_point(shop: Shop) -> None:
    shop.fails = {"c": ALWAYS}
    flow = shop.flow()
    for name in "abc":
        flow = flow.step(name, "do", undo=Undo("do", name=f"un{name}")).save_point(f"after_{name}")
    story = await shop.run(flow)
    assert shop.log == ["a", "b", "c", "unc"]
    assert (story["a"], story["b"], story["c"]) == ("completed", "completed", "rolled_back")


async def test_the_chain_collects_all_executed_steps_up_to_that_point_newest_first(shop: Shop) -> None:
    shop.fails = {"d": ALWAYS}
    flow = shop.flow()
    for name in "abcd":
        flow = flow.step(name, "do", undo=Undo("do", name=f"un{name}"))
    story = await shop.run(flow)
    assert shop.log == ["a", "b", "c", "d", "und", "unc", "unb", "una"]
    assert {story[name] for name in "abcd"} == {"rolled_back"}


async def test_a_condition_in_a_parallel_flow_rolls_back_only_the_branch_that_ran(shop: Shop) -> None:
    shop.fails = {"last": ALWAYS}
    choice = (
        Branch()
        .condition("big", "input.amount > 5", Branch().step("small", "do", undo=Undo("do", name="unsmall")))
        .then("large", "do", undo=Undo("do", name="unlarge"))
    )
    other = Branch().step("other", "do", undo=Undo("do", name="unother"))
    flow = shop.flow().fork("fork", choice, other).join("join").step("last", "do")
    await shop.run(flow, {"amount": 9})
    assert sorted(shop.log[:2]) == ["large", "other"]
    assert shop.log[2:] == ["last", "unlarge", "unother"]


async def test_a_regular_step_without_undo_is_marked_rolled_back(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do").step("b", "do"))
    assert (story["a"], story["b"], shop.log) == ("rolled_back", "rolled_back", ["a", "b"])


async def test_the_compensation_of_the_failed_step_runs_first_and_then_strictly_backwards(shop: Shop) -> None:
    """Semantics 8: branches in declaration order, each from its deepest step, then what came before the fork."""
    shop.fails = {"b2": ALWAYS}
    shop.hold("b1")  # so that the branch a is through when b fails
    flow = (
        shop.flow()
        .step("first", "do", undo=Undo("do", name="unfirst"))
        .fork(
            "fork",
            Branch().step("a1", "do", undo=Undo("do", name="una1")).step("a2", "do", undo=Undo("do", name="una2")),
            Branch().step("b1", "do", undo=Undo("do", name="unb1")).step("b2", "do", undo=Undo("do", name="unb2")),
        )
        .join("join")
    )  # fmt: skip
    id = await shop.start(flow)
    await shop.begun("a2", "b1")
    shop.let_go("b1")
    assert (await shop.over(id)).status == "failed"
    assert shop.log[-5:] == ["unb2", "una2", "una1", "unb1", "unfirst"]


async def test_nested_forks_roll_back_branch_by_branch_from_the_deepest_step(shop: Shop) -> None:
    shop.fails = {"last": ALWAYS}

    def leaf(name: str) -> Branch:
        return Branch().step(name, "do", undo=Undo("do", name=f"un{name}"))

    inner = (
        leaf("a").fork("inner", leaf("a0").step("a00", "do", undo=Undo("do", name="una00")), leaf("a1")).join("meet")
    )
    flow = shop.flow().fork("outer", inner.step("az", "do", undo=Undo("do", name="unaz")), leaf("b")).join("join")
    await shop.run(flow.step("last", "do"))
    assert shop.log[-6:] == ["unaz", "una00", "una0", "una1", "una", "unb"]


async def test_a_sibling_that_runs_when_a_branch_fails_finishes_and_is_compensated(shop: Shop) -> None:
    """Semantics 8: a failing branch stops its pending siblings; running ones finish."""
    shop.fails = {"bad": ALWAYS}
    shop.hold("slow")
    slow = Branch().step("slow", "do", undo=Undo("do", name="unslow"))
    slow = slow.step("after", "do", undo=Undo("do", name="unafter"))
    flow = shop.flow().fork("fork", slow, Branch().step("bad", "do")).join("join")
    id = await shop.start(flow)
    await shop.begun("slow", "bad")
    during = await shop.until_status(id, "rolling_back")
    assert (during["slow"], "unslow" in during) == ("running", False)
    shop.let_go("slow")
    story = await shop.over(id)
    assert (story["slow"], shop.log[-1], shop.told) == ("rolled_back", "unslow", [])
    assert "after" not in story


async def test_a_sibling_that_has_not_begun_when_a_branch_fails_is_skipped(shop: Shop) -> None:
    shop.fails = {"bad": ALWAYS}
    waiting = Branch().step("later", "do", undo=Undo("do", name="unlater"), delay=3600)
    story = await shop.run(shop.flow().fork("fork", waiting, Branch().step("bad", "do")).join("join"))
    assert (story.status, story["later"], "unlater" in shop.log) == ("failed", "skipped", False)


async def test_a_step_a_person_confirmed_is_compensated_too(shop: Shop) -> None:
    shop.fails = {"ship": ALWAYS}
    id = await shop.start(shop.flow().human("approve", undo=Undo("do", name="withdraw")).step("ship", "do"))
    await shop.settle()
    await shop.engine.decide(await shop.task(id), by="ann", decision="confirmed")
    await shop.settle()
    story = await shop.look(id)
    assert (story["approve"], shop.log) == ("rolled_back", ["ship", "withdraw"])


async def test_a_sub_flow_that_failed_takes_its_parent_back(shop: Shop) -> None:
    """Semantics 8: the child has taken itself back; of the parent the chain begins at the step that started it."""
    shop.fails = {"c2": ALWAYS}
    child = Flow(f"{shop.name}.child").step("c1", "do", undo=Undo("do", name="unc1")).step("c2", "do")
    await shop.engine.publish(child.build())
    flow = (
        shop.flow()
        .step("a", "do", undo=Undo("do", name="una"))
        .sub_flow("sub", child.build().name, undo=Undo("do", name="unsub"))
    )
    story = await shop.run(flow)
    assert (story.status, story["sub"], story["a"]) == ("failed", "rolled_back", "rolled_back")
    assert shop.log == ["a", "c1", "c2", "unc1", "unsub", "una"]


async def test_a_sub_flow_that_completed_is_undone_by_the_compensation_of_its_step_alone(shop: Shop) -> None:
    """Semantics 8: terminal children stay terminal."""
    shop.fails = {"b": ALWAYS}
    child = Flow(f"{shop.name}.child").step("c1", "do", undo=Undo("do", name="unc1")).build()
    await shop.engine.publish(child)
    await shop.run(shop.flow().sub_flow("sub", child.name, undo=Undo("do", name="unsub")).step("b", "do"))
    assert shop.log == ["c1", "b", "unsub"]


async def test_an_event_that_was_waited_for_is_compensated_too(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    id = (await shop.run(shop.flow().wait_event("paid", undo=Undo("do", name="unpaid")).step("b", "do"))).id
    await shop.engine.signal(id, "paid", {"amount": 5})
    await shop.settle()
    assert (shop.log, shop.data["unpaid"]["output"]) == (["b", "unpaid"], {"amount": 5})


async def test_an_instance_that_is_out_of_time_is_rolled_back(shop: Shop) -> None:
    flow = shop.flow(timeout=60).step("a", "do", undo=Undo("do", name="una")).step("b", "do", delay=3600)
    story = await shop.run(flow)
    await shop.pass_time(61)
    story = await shop.look(story.id)
    assert (story.status, story.instance.reason, shop.log) == ("failed", "WORKFLOW_TIMEOUT", ["a", "una"])
    assert (story["a"], story["b"]) == ("rolled_back", "skipped")


async def test_a_rollback_can_be_suspended_and_resumed(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    shop.hold("unb")
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do", undo=Undo("do", name="unb"))
    id = await shop.start(flow)
    await shop.begun("unb")
    await shop.engine.suspend(id)
    shop.let_go("unb")
    await shop.settle()
    story = await shop.look(id)
    assert (story.status, story["b"], story["una"]) == ("suspended", "rolled_back", "pending")
    await shop.engine.resume(id)
    story = await shop.over(id)
    assert (story.status, story["a"], shop.log) == ("failed", "rolled_back", ["a", "b", "unb", "una"])


# --- 5.3 conditions ---------------------------------------------------------------------------------------------------


def _with_a_choice(shop: Shop) -> Flow:
    otherwise = Branch().step("else_action", "do", undo=Undo("do", name="unelse"))
    choice = Branch().condition("check", "input.count > 5", otherwise)
    choice = choice.then("next_action", "do", undo=Undo("do", name="unnext"))
    return shop.flow().fork("fork", choice, Branch().step("other", "do")).join("join")


async def test_branch_detection_finds_the_branch_that_was_executed(shop: Shop) -> None:
    shop.fails = {"next_action": ALWAYS}
    story = await shop.run(_with_a_choice(shop), {"count": 9})
    assert (story["next_action"], story["check"], "else_action" in story) == ("rolled_back", "rolled_back", False)


async def test_selective_rollback_undoes_only_the_steps_of_the_executed_branch(shop: Shop) -> None:
    shop.fails = {"else_action": ALWAYS}
    story = await shop.run(_with_a_choice(shop), {"count": 1})
    assert (story["else_action"], "next_action" in story) == ("rolled_back", False)
    assert ("unelse" in shop.log, "unnext" in shop.log) == (True, False)


async def test_context_preservation_gives_the_compensation_what_its_step_got(shop: Shop) -> None:
    shop.fails = {"next_action": ALWAYS}
    await shop.run(_with_a_choice(shop), {"count": 9})
    assert shop.data["unnext"]["input"] == shop.data["next_action"] == {"count": 9}


# --- 5.4 save points --------------------------------------------------------------------------------------------------


async def test_a_save_point_marks_a_rollback_boundary(shop: Shop) -> None:
    shop.fails = {"ship_order": ALWAYS}
    flow = (
        shop.flow()
        .step("reserve_funds", "do", undo=Undo("do", name="release_funds"))
        .save_point("after_reserve")
        .step("ship_order", "do", undo=Undo("do", name="cancel_shipping"))
    )  # fmt: skip
    story = await shop.run(flow)
    assert shop.log == ["reserve_funds", "ship_order", "cancel_shipping"]
    assert (story["reserve_funds"], story["after_reserve"], story.status) == ("completed", "completed", "failed")


async def test_a_failure_before_the_save_point_rolls_back_to_the_root(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do").save_point("p").step("c", "do")
    story = await shop.run(flow)
    assert (shop.log, story["a"], "p" in story) == (["a", "b", "una"], "rolled_back", False)


async def test_a_save_point_covers_the_forks_before_it(shop: Shop) -> None:
    """Semantics 8: save points are exclusive: what came before them stands."""
    shop.fails = {"late": ALWAYS}
    branches = [Branch().step(name, "do", undo=Undo("do", name=f"un{name}")) for name in "ab"]
    flow = shop.flow().fork("fork", *branches).join("join").save_point("point").step("late", "do")
    story = await shop.run(flow)
    assert (story["a"], story["b"], story["join"], story["late"]) == (*["completed"] * 3, "rolled_back")
