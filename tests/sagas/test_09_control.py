"""Chapter 9 of the text: cancel and abort."""

from __future__ import annotations

from typing import Any

import pytest
from shop import ALWAYS, Shop, Story, refusal

from holdfast import Branch, Engine, Flow, Undo

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("operation", ["cancel", "abort"])
RESULT = {"cancel": "cancelled", "abort": "aborted"}


async def stop(shop: Shop, operation: str, id: str) -> Any:
    return await getattr(shop.engine, operation)(id, by="ops", reason="enough")


# --- 9.2 and 9.3 what they do -----------------------------------------------------------------------------------------


@BOTH
async def test_active_steps_are_stopped_and_skipped(shop: Shop, operation: str) -> None:
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do", undo=Undo("do", name="una")))
    await shop.begun("a")
    await stop(shop, operation, id)
    story = await shop.over(id)
    await shop.settle()
    assert (story.status, story["a"], shop.told, shop.log) == (RESULT[operation], "skipped", ["a"], ["a"])


@BOTH
async def test_a_plain_function_is_told_by_a_flag(shop: Shop, operation: str) -> None:
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do_plainly"))
    await shop.begun("a")
    await stop(shop, operation, id)
    await shop.over(id)
    await shop.settle()
    assert shop.told == ["a"]


@BOTH
async def test_all_parallel_steps_are_stopped_together(shop: Shop, operation: str) -> None:
    names = [f"p{n}" for n in range(5)]
    shop.hold(*names)
    flow = shop.flow().step("start", "do", undo=Undo("do", name="unstart"))
    flow = flow.fork("f", *(Branch().step(name, "do") for name in names)).join("j").step("final", "do")
    id = await shop.start(flow)
    await shop.begun(*names)
    await stop(shop, operation, id)
    story = await shop.over(id)
    await shop.settle()
    assert {story[name] for name in names} == {"skipped"}
    assert (sorted(shop.told), "j" in story, "final" in story) == (names, False, False)
    assert story["start"] == {"cancel": "rolled_back", "abort": "completed"}[operation]


async def test_cancel_executes_the_rollback_chain_in_reverse_to_the_root(shop: Shop) -> None:
    """Semantics 8: save points do not stop a cancel."""
    flow = (
        shop.flow()
        .step("a", "do", undo=Undo("do", name="una"))
        .save_point("p")
        .step("b", "do", undo=Undo("do", name="unb"))
    )
    id = (await shop.run(flow.human("h"))).id
    await stop(shop, "cancel", id)
    story = await shop.over(id)
    assert (story.status, shop.log) == ("cancelled", ["a", "b", "unb", "una"])
    assert (story["a"], story["b"], story["p"]) == ("rolled_back", "rolled_back", "rolled_back")


async def test_cancel_ends_failed_if_a_compensation_fails(shop: Shop) -> None:
    shop.fails = {"unb": ALWAYS}
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do", undo=Undo("do", name="unb"))
    id = (await shop.run(flow.human("h"))).id
    await stop(shop, "cancel", id)
    story = await shop.over(id)
    assert (story.status, story["b"], story["a"], len(story.letters)) == ("failed", "failed", "rolled_back", 1)


async def test_a_step_that_answers_although_it_was_told_is_compensated(shop: Shop) -> None:
    """Semantics 8: a cancel awaits the result of a running step: completed, it is compensated."""
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do_plainly", undo=Undo("do", name="una")))
    await shop.begun("a")
    await stop(shop, "cancel", id)
    story = await shop.over(id)
    assert (story.status, story["a"], shop.log) == ("cancelled", "rolled_back", ["a", "una"])


async def test_abort_compensates_nothing(shop: Shop) -> None:
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).human("h")
    id = (await shop.run(flow)).id
    await stop(shop, "abort", id)
    story = await shop.over(id)
    await shop.settle()
    assert (story.status, story["a"], shop.log) == ("aborted", "completed", ["a"])


async def test_cancel_cascades_to_a_sub_flow_and_waits_for_it(shop: Shop) -> None:
    """Semantics 8: terminal children stay terminal, running ones are cancelled with their parent."""
    await shop.engine.publish(
        Flow(f"{shop.name}.child").step("c", "do", undo=Undo("do", name="unc")).human("child_waits").build()
    )
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).sub_flow("sub", f"{shop.name}.child")
    id = (await shop.run(flow)).id
    assert shop.log == ["a", "c"]
    await stop(shop, "cancel", id)
    story = await shop.over(id)
    await shop.settle()
    assert (story.status, story["sub"], shop.log) == ("cancelled", "skipped", ["a", "c", "unc", "una"])


async def test_abort_compensates_nothing_in_a_sub_flow_either(shop: Shop) -> None:
    await shop.engine.publish(
        Flow(f"{shop.name}.child").step("c", "do", undo=Undo("do", name="unc")).human("child_waits").build()
    )
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).sub_flow("sub", f"{shop.name}.child")
    id = (await shop.run(flow)).id
    await stop(shop, "abort", id)
    await shop.settle()
    [child] = (await shop.engine.list(flow=f"{shop.name}.child")).items
    story = await shop.look(child.id)
    assert (story.status, story["c"], story["child_waits"], shop.log) == ("aborted", "completed", "skipped", ["a", "c"])
    [begun] = story.noted("abort_started")
    assert (begun.actor, begun.detail) == ("ops", {"by": "ops", "reason": "parent: enough"})


# --- 9.4 nested parallelism -------------------------------------------------------------------------------------------


@BOTH
async def test_nested_parallel_steps_are_stopped_too(shop: Shop, operation: str) -> None:
    shop.hold("x", "y", "b")
    inner = Branch().fork("g", Branch().step("x", "do"), Branch().step("y", "do")).join("k")
    id = await shop.start(shop.flow().fork("f", inner, Branch().step("b", "do")).join("j"))
    await shop.begun("x", "y", "b")
    await stop(shop, operation, id)
    story = await shop.over(id)
    await shop.settle()
    assert ({story[name] for name in "xyb"}, sorted(shop.told)) == ({"skipped"}, ["b", "x", "y"])


# --- 9.5 states of the instance ---------------------------------------------------------------------------------------


@BOTH
async def test_a_running_instance_can_be_stopped(shop: Shop, operation: str) -> None:
    id = (await shop.run(shop.flow().human("h"))).id
    await stop(shop, operation, id)
    assert (await shop.over(id)).status == RESULT[operation]


@BOTH
async def test_a_pending_instance_can_be_stopped(shop: Shop, operation: str) -> None:
    """Stored by an engine that runs no worker: whoever applies the stop begins the instance and ends it."""
    async with Engine(shop.engine.dsn) as lonely:
        await lonely.publish(shop.flow().step("a", "nobody_has_this").build())
        started = await lonely.start(shop.name)
        assert started.status == "pending"
        await getattr(lonely, operation)(started.id, by="ops", reason="enough")
        assert (await shop.over(started.id)).status == RESULT[operation]


@BOTH
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "aborted"])
async def test_a_terminal_instance_refuses(shop: Shop, operation: str, status: str) -> None:
    story = await _ended(shop, status)
    assert await refusal(stop(shop, operation, story.id)) == "INSTANCE_OVER"
    assert (await shop.look(story.id)).status == status


async def _ended(shop: Shop, status: str) -> Story:
    if status == "failed":
        shop.fails = {"a": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do") if status in ("completed", "failed") else shop.flow().human("h"))
    if status == "cancelled":
        await shop.engine.cancel(story.id)
    if status == "aborted":
        await shop.engine.abort(story.id)
    return await shop.over(story.id)


@BOTH
async def test_a_suspended_instance_can_be_stopped(shop: Shop, operation: str) -> None:
    id = (await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una")).human("h"))).id
    await shop.engine.suspend(id)
    await stop(shop, operation, id)
    assert (await shop.over(id)).status == RESULT[operation]


@BOTH
async def test_an_instance_in_dlq_can_be_stopped(shop: Shop, operation: str) -> None:
    shop.fails = {"b": ALWAYS}
    story = await shop.run(shop.flow(dlq=True).step("a", "do", undo=Undo("do", name="una")).step("b", "do"))
    await stop(shop, operation, story.id)
    ended = await shop.over(story.id)
    assert (ended.status, ended["b"], ended.letters) == (RESULT[operation], "skipped", [])
    assert ended["a"] == {"cancel": "rolled_back", "abort": "completed"}[operation]


async def test_an_instance_that_rolls_back_can_only_be_aborted(shop: Shop) -> None:
    """Semantics 7: what was not taken back stays as it is and says so."""
    shop.fails = {"b": ALWAYS}
    shop.hold("unb")
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do", undo=Undo("do", name="unb"))
    id = await shop.start(flow)
    await shop.begun("unb")
    assert await refusal(stop(shop, "cancel", id)) == "INSTANCE_ROLLING_BACK"
    await stop(shop, "abort", id)
    story = await shop.over(id)
    await shop.settle()
    assert (story.status, story["a"], story["b"], story["una"]) == ("aborted", "completed", "failed", "skipped")
    assert (shop.log, shop.told) == (["a", "b", "unb"], ["unb"])


# --- 9.6 statuses of steps --------------------------------------------------------------------------------------------


@BOTH
async def test_pending_steps_become_skipped(shop: Shop, operation: str) -> None:
    id = (await shop.run(shop.flow().step("a", "do", delay=3600))).id
    await stop(shop, operation, id)
    story = await shop.over(id)
    assert (story["a"], story.step("a").outcome, shop.log) == ("skipped", RESULT[operation], [])


async def test_completed_steps_become_rolled_back_after_a_cancel(shop: Shop) -> None:
    id = (await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una")).human("h"))).id
    await stop(shop, "cancel", id)
    assert (await shop.over(id))["a"] == "rolled_back"


async def test_completed_steps_become_failed_if_their_compensation_fails(shop: Shop) -> None:
    shop.fails = {"una": ALWAYS}
    id = (await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una")).human("h"))).id
    await stop(shop, "cancel", id)
    assert (await shop.over(id))["a"] == "failed"


@BOTH
async def test_human_waiting_decision_becomes_skipped(shop: Shop, operation: str) -> None:
    id = (await shop.run(shop.flow().human("h"))).id
    task = await shop.task(id)
    await stop(shop, operation, id)
    assert (await shop.over(id))["h"] == "skipped"
    assert (await shop.engine.task(task)).status == "cancelled"


async def test_human_confirmed_becomes_rolled_back_during_cancel(shop: Shop) -> None:
    id = (await shop.run(shop.flow().human("h1").human("h2"))).id
    await shop.engine.decide(await shop.task(id), by="ann", decision="confirmed")
    await stop(shop, "cancel", id)
    story = await shop.over(id)
    assert (story["h1"], story["h2"]) == ("rolled_back", "skipped")


async def test_human_rejected_stays_unchanged(shop: Shop) -> None:
    id = (await shop.run(shop.flow().human("h"))).id
    await shop.engine.decide(await shop.task(id), by="ann", decision="rejected")
    assert await refusal(stop(shop, "cancel", id)) == "INSTANCE_OVER"
    assert (await shop.look(id))["h"] == "rejected"


# --- 9.7 the record ---------------------------------------------------------------------------------------------------


@BOTH
async def test_events_of_a_stop_say_who_and_why(shop: Shop, operation: str) -> None:
    """The text's `workflow_cancelled` and `workflow_aborted` are `instance_cancelled` and `instance_aborted` here."""
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do"))
    await shop.begun("a")
    await stop(shop, operation, id)
    story = await shop.over(id)
    [started] = story.noted({"cancel": "cancellation_started", "abort": "abort_started"}[operation])
    [ended] = story.noted(f"instance_{RESULT[operation]}")
    assert (started.actor, started.detail) == ("ops", {"by": "ops", "reason": "enough"})
    assert ended.detail == {"by": "ops", "reason": "enough"}
    assert story.instance.reason == "enough"


async def test_events_of_a_pause_and_of_its_end_say_who_and_why(shop: Shop) -> None:
    id = (await shop.run(shop.flow().wait_event("go"))).id
    await shop.engine.suspend(id, by="ann", reason="audit")
    await shop.engine.resume(id, by="ben", reason="all is well")
    story = await shop.look(id)
    assert [event.detail for event in story.noted("instance_suspended")] == [{"by": "ann", "reason": "audit"}]
    assert [event.detail for event in story.noted("instance_resumed")] == [{"by": "ben", "reason": "all is well"}]
    await shop.engine.abort(id)


@BOTH
async def test_event_of_the_active_step_says_that_the_workflow_stopped(shop: Shop, operation: str) -> None:
    """The text's `step_failed` with reason workflow_stopped: here the step did not fail, so it is `step_skipped`."""
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do"))
    await shop.begun("a")
    await stop(shop, operation, id)
    [event] = (await shop.over(id)).noted("step_skipped")
    assert (event.node, event.detail) == ("a", {"reason": "workflow_stopped"})


@BOTH
async def test_event_of_a_waiting_step_has_the_same_reason(shop: Shop, operation: str) -> None:
    branches = Branch().human("h"), Branch().step("later", "do", delay=3600)
    id = (await shop.run(shop.flow().fork("f", *branches).join("j"))).id
    await stop(shop, operation, id)
    events = (await shop.over(id)).noted("step_skipped")
    assert [(event.node, event.detail) for event in events] == [
        (name, {"reason": "workflow_stopped"}) for name in ("h", "later")
    ]
