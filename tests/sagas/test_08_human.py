"""Chapter 8 of the text: steps that wait for a person."""

from __future__ import annotations

from uuid import uuid4

import pytest
from shop import Shop, refusal

from holdfast import Branch, Undo
from holdfast.store.tasks import Task

pytestmark = pytest.mark.anyio


async def _waiting(shop: Shop) -> tuple[str, str]:
    """An instance that waits for a decision, and its task."""
    id = (await shop.run(shop.flow().step("process", "do").human("approve").step("publish", "do"))).id
    return id, await shop.task(id)


# --- 8.3 life ---------------------------------------------------------------------------------------------------------


async def test_lifecycle_pending_running_waiting_decision(shop: Shop) -> None:
    """A step that needs no handler is never seen pending or running: it waits from the commit that opens it."""
    id, _ = await _waiting(shop)
    story = await shop.look(id)
    assert (story["approve"], story.status, "publish" in story) == ("waiting_decision", "running", False)


@pytest.mark.parametrize("decision", ["confirmed", "rejected"])
async def test_lifecycle_waiting_decision_to_confirmed_or_rejected(shop: Shop, decision: str) -> None:
    id, task = await _waiting(shop)
    await shop.engine.decide(task, by="ann", decision=decision)
    await shop.settle()
    assert (await shop.look(id))["approve"] == decision


# --- 8.4 states -------------------------------------------------------------------------------------------------------


async def test_state_waiting_decision_pauses_the_step(shop: Shop) -> None:
    id, _ = await _waiting(shop)
    await shop.pass_time(86_400)
    assert ((await shop.look(id))["approve"], shop.log) == ("waiting_decision", ["process"])


async def test_state_confirmed_lets_the_workflow_continue(shop: Shop) -> None:
    id, task = await _waiting(shop)
    await shop.engine.decide(task, by="ann", decision="confirmed")
    await shop.settle()
    assert ((await shop.look(id)).status, shop.log) == ("completed", ["process", "publish"])


async def test_state_rejected_aborts_the_workflow(shop: Shop) -> None:
    id, task = await _waiting(shop)
    await shop.engine.decide(task, by="ann", decision="rejected")
    assert (await shop.look(id)).status == "aborted"


# --- 8.5 making decisions ---------------------------------------------------------------------------------------------


async def test_parameter_step_id_names_the_step(shop: Shop) -> None:
    """The task is what is decided; it knows its step."""
    id, task = await _waiting(shop)
    assert (await shop.engine.task(task)).step_id == (await shop.look(id)).step("approve").id


async def test_parameter_decided_by(shop: Shop) -> None:
    _, task = await _waiting(shop)
    assert (await shop.engine.decide(task, by="ann@company", decision="confirmed")).decided_by == "ann@company"


async def test_parameter_decision_must_be_one_the_step_offers(shop: Shop) -> None:
    id, task = await _waiting(shop)
    for wrong in ("error", "perhaps"):
        assert await refusal(shop.engine.decide(task, by="ann", decision=wrong)) == "DECISION_NOT_OFFERED"
    assert (await shop.look(id))["approve"] == "waiting_decision"


@pytest.mark.parametrize("comment", [None, "looks fine"])
async def test_parameter_comment_is_optional(shop: Shop, comment: str | None) -> None:
    _, task = await _waiting(shop)
    decided = await shop.engine.decide(task, by="ann", decision="confirmed", comment=comment)
    assert decided.comment == comment


async def test_a_decision_on_the_wrong_step_is_a_typed_error(shop: Shop) -> None:
    assert await refusal(shop.engine.decide(uuid4(), by="ann", decision="confirmed")) == "TASK_UNKNOWN"


async def test_a_second_decision_is_a_typed_error(shop: Shop) -> None:
    _, task = await _waiting(shop)
    await shop.engine.decide(task, by="ann", decision="confirmed")
    assert await refusal(shop.engine.decide(task, by="bob", decision="rejected")) == "TASK_OVER"


async def test_a_decision_that_comes_too_late_is_a_typed_error(shop: Shop) -> None:
    id, task = await _waiting(shop)
    await shop.engine.cancel(id)
    assert await refusal(shop.engine.decide(task, by="ann", decision="confirmed")) == "TASK_OVER"


# --- 8.6 what follows -------------------------------------------------------------------------------------------------


async def test_on_confirmation_the_step_is_confirmed_and_the_decision_logged(shop: Shop) -> None:
    id, task = await _waiting(shop)
    await shop.engine.decide(task, by="ann", decision="confirmed", comment="fine")
    await shop.settle()
    story = await shop.look(id)
    assert (story["approve"], story.step("approve").closed_by) == ("confirmed", "ann")
    assert [event.actor for event in story.events if event.node == "approve"][-1] == "ann"


async def test_on_rejection_no_further_steps_are_executed_and_nothing_is_compensated(shop: Shop) -> None:
    flow = shop.flow().step("process", "do", undo=Undo("do", name="unprocess")).human("approve").step("publish", "do")
    id = (await shop.run(flow)).id
    await shop.engine.decide(await shop.task(id), by="ann", decision="rejected")
    await shop.settle()
    story = await shop.look(id)
    assert (story.status, story["approve"], story["process"]) == ("aborted", "rejected", "completed")
    assert shop.log == ["process"]


async def test_on_rejection_in_a_branch_its_siblings_are_skipped(shop: Shop) -> None:
    flow = shop.flow().fork("f", Branch().human("approve"), Branch().step("later", "do", delay=3600)).join("j")
    id = (await shop.run(flow)).id
    await shop.engine.decide(await shop.task(id), by="ann", decision="rejected")
    story = await shop.over(id)
    assert (story.status, story["approve"], story["later"]) == ("aborted", "rejected", "skipped")


# --- 8.7 the record of a decision -------------------------------------------------------------------------------------


async def _decided(shop: Shop, decision: str = "confirmed", comment: str | None = "because") -> Task:
    _, task = await _waiting(shop)
    await shop.engine.decide(task, by="ann", decision=decision, comment=comment)
    return await shop.engine.task(task)


async def test_decision_field_step_id(shop: Shop) -> None:
    record = await _decided(shop)
    assert record.step_id == (await shop.look(record.instance_id)).step("approve").id


async def test_decision_field_decided_by(shop: Shop) -> None:
    assert (await _decided(shop)).decided_by == "ann"


@pytest.mark.parametrize("decision", ["confirmed", "rejected"])
async def test_decision_field_decision(shop: Shop, decision: str) -> None:
    assert (await _decided(shop, decision)).decision == decision


@pytest.mark.parametrize("comment", ["because", None])
async def test_decision_field_comment(shop: Shop, comment: str | None) -> None:
    assert (await _decided(shop, comment=comment)).comment == comment


async def test_decision_field_decided_at(shop: Shop) -> None:
    """The moment of the commit that decided it, which has a line in the audit trail."""
    record = await _decided(shop)
    [event] = (await shop.look(record.instance_id)).noted("decision_made")
    assert record.closed_at == event.created_at
