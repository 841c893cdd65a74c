"""A person's step with an operation: somebody answers, and the call is made on the way their answer takes."""

from __future__ import annotations

from typing import Any

import pytest
from steps_yaml import document, sound, step, workflow

from holdfast import Context, Engine
from holdfast.doors.steps.load import to_graph
from holdfast.errors import Forbidden

pytestmark = pytest.mark.anyio

ANN: dict[str, Any] = {"by": "ann", "capabilities": ["big"]}
REVIEW: dict[str, Any] = {
    "operation": "python:book",
    "input": {"order": "workflow.order", "note": "input.note", "by": "workflow.approved_by"},
    "output": {"booking": "response.id"},
}


def reviewed(transitions: list[tuple[str, ...]], guard: str | None = None, **review: Any) -> str:
    ends = [step(end) for end in sorted({transition[2] for transition in transitions} - {"review"})]
    flow = workflow([step("review", "approval", name="Review", **{**REVIEW, **review}), *ends], transitions)
    if guard is not None:
        flow["transitions"][0]["guard"] = guard
    return document(flow)


BOTH: list[tuple[str, ...]] = [("review", "approved", "done"), ("review", "rejected", "dropped")]


def ways(text: str) -> set[tuple[str, str, str]]:
    return {(edge.source, edge.on or "", edge.target) for edge in to_graph(sound(text)).edges}


def test_the_way_of_an_answer_leads_over_the_call() -> None:
    graph = to_graph(sound(reviewed(BOTH, timeout="1h", on_timeout="dropped", retry={"calls": 3}, call_timeout="5s")))
    nodes = {node.id: node for node in graph.nodes}
    assert ways(reviewed(BOTH)) == {
        ("review", "approved", "review.approved"),
        ("review.approved", "completed", "done"),
        ("review", "rejected", "dropped"),
    }
    review, call = nodes["review"], nodes["review.approved"]
    assert (review.kind, review.handler, review.deadline) == ("approval", None, 3600.0)
    assert (call.kind, call.handler, call.timeout, call.deadline) == ("task", "book", 5.0, None)
    assert call.retry is not None
    assert (call.retry.calls, call.input, call.output) == (3, REVIEW["input"], REVIEW["output"])
    assert call.metadata == {"type": "system", "name": "Review: approved"}


def test_the_answers_that_call_may_be_named() -> None:
    text = reviewed([*BOTH, ("review", "unclear", "review")], call_on=["rejected"])
    assert ways(text) == {
        ("review", "approved", "done"),
        ("review", "unclear", "review"),
        ("review", "rejected", "review.rejected"),
        ("review.rejected", "completed", "dropped"),
    }


def test_every_transition_of_an_answer_has_a_call_of_its_own_and_all_share_the_way_of_errors() -> None:
    text = reviewed(
        [
            ("review", "approved", "big", "workflow.amount > 100"),
            ("review", "approved", "small"),
            ("review", "error", "broken"),
        ]
    )
    assert ways(text) == {
        ("review", "approved", "review.approved"),
        ("review", "approved", "review.approved#2"),
        ("review.approved", "completed", "big"),
        ("review.approved#2", "completed", "small"),
        ("review.approved", "error", "broken"),
        ("review.approved#2", "error", "broken"),
    }


@pytest.fixture
async def booked(engine: Engine) -> list[Any]:
    calls: list[Any] = []

    @engine.handler("book")
    async def book(ctx: Context, data: Any) -> Any:
        calls.append(data)
        if data["note"] == "broken" and len(calls) == 1:
            raise ValueError("No room.")
        return {"id": f"b-{data['order']}", "noise": 1}

    return calls


async def answered(engine: Engine, text: str, event: str, note: str, **person: Any) -> Any:
    await engine.publish(sound(text))
    id = (await engine.start("w", {"order": 7}, by="bob")).id
    await engine.drain()
    await engine.advance(id, event, {"note": note}, **{**ANN, **person})
    await engine.drain()
    return await engine.descriptor(id, **ANN)


async def test_an_answer_makes_the_call_and_what_it_gives_is_kept(engine: Engine, booked: list[Any]) -> None:
    seen = await answered(engine, reviewed(BOTH), "approved", "fine")
    assert booked == [{"order": 7, "note": "fine", "by": "ann"}]
    assert (seen.status, seen.current_step.id) == ("completed", "done")
    assert seen.state == {"order": 7, "note": "fine", "approved_by": "ann", "booking": "b-7"}
    told = [(event.event, event.step, event.actor) for event in seen.history]
    assert ("approved", "review", "ann") in told
    assert ("step_completed", "review.approved", "system") in told


async def test_a_refusal_calls_nothing(engine: Engine, booked: list[Any]) -> None:
    seen = await answered(engine, reviewed(BOTH), "rejected", "no")
    assert booked == []
    assert (seen.status, seen.current_step.id) == ("completed", "dropped")


async def test_a_call_that_fails_takes_the_way_of_errors(engine: Engine, booked: list[Any]) -> None:
    seen = await answered(engine, reviewed([*BOTH, ("review", "error", "broken")]), "approved", "broken")
    assert (seen.status, seen.current_step.id, len(booked)) == ("completed", "broken", 1)
    assert seen.state["_last_error"]["message"] == "No room."


async def test_without_one_the_workflow_is_suspended_and_goes_on_when_it_is_resumed(
    engine: Engine, booked: list[Any]
) -> None:
    seen = await answered(engine, reviewed(BOTH), "approved", "broken")
    assert (seen.status, seen.current_step.id, seen.current_step.type) == ("suspended", "review.approved", "system")
    await engine.resume(seen.id, by="ops")
    await engine.drain()
    ended = await engine.get(seen.id)
    assert (ended.status, ended.data["booking"]) == ("completed", "b-7")
    assert len(booked) == 2


async def test_whoever_may_not_take_the_way_calls_nothing(engine: Engine, booked: list[Any]) -> None:
    with pytest.raises(Forbidden):
        await answered(engine, reviewed(BOTH, guard="big"), "approved", "fine", capabilities=[])
    assert booked == []
