"""What a step is given: the value that arrived, everything gathered so far, or what its own mapping makes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from faults.replayed import replay_all

from holdfast import Branch, Context, Engine, Flow, Undo
from holdfast.doors.saga.lowering import lower
from holdfast.doors.saga.printing import code_of
from holdfast.doors.saga.source import read_source
from holdfast.errors import DefinitionError
from holdfast.payloads import decode, encode

pytestmark = pytest.mark.anyio

given: dict[str, Any] = {}


@pytest.fixture
async def place(engine: Engine) -> Engine:
    given.clear()

    @engine.handler("tell")
    async def tell(ctx: Context, data: Any) -> Any:
        given[ctx.step] = data
        return {ctx.step: ctx.attempt}

    @engine.handler("count")
    async def count(ctx: Context, data: Any) -> int:
        given[ctx.step] = data
        return 7

    @engine.handler("refuse")
    async def refuse(ctx: Context, data: Any) -> Any:
        given[ctx.step] = data
        raise ValueError("no")

    return engine


async def run(engine: Engine, flow: Flow, data: Any, *events: tuple[str, Any]) -> Any:
    published = await engine.publish(flow.build())
    started = await engine.start(published.name, data)
    await engine.drain(timeout=30)
    for event, carried in events:
        await engine.signal(started.id, event, carried)
        await engine.drain(timeout=30)
    return await engine.get(started.id)


def replays(engine: Engine) -> list[object]:
    with psycopg.connect(engine.dsn, autocommit=True) as connection:
        return [found.difference for found in replay_all(connection) if found.difference is not None]


GATHERED = (
    Flow("gathered", data="context")
    .step("one", "tell")
    .wait_event("paid")
    .parallel("both", ("left", "tell"), ("right", "tell"))
    .human("look")
    .step("last", "tell")
)


async def test_in_the_context_nothing_wipes_what_was_there(place: Engine) -> None:
    done = await run(place, GATHERED, {"sku": "A-1"}, ("paid", {"payment": 9}))
    task = (await place.tasks(done.id))[0]
    await place.decide(task.id, decision="confirm", data={"seen": True}, by="ann")
    await place.drain(timeout=30)
    done = await place.get(done.id)
    before = {"sku": "A-1", "one": 1}
    assert given["one"] == {"sku": "A-1"}
    assert given["left"].items() >= {**before, "payment": 9}.items()
    assert given["right"].items() >= {**before, "payment": 9}.items()
    assert given["last"] == {**before, "payment": 9, "left": 1, "right": 1, "seen": True}
    assert (done.status, done.data) == ("completed", {**given["last"], "last": 1})
    assert replays(place) == []


async def test_conditions_read_what_was_gathered_and_what_was_just_answered(place: Engine) -> None:
    flow = (
        Flow("choice", data="context")
        .step("one", "tell")
        .step("two", "tell")
        .condition("gathered", "context.one == 1 && context.n == 3")
        .condition("answered", "input.two == 1 && input.one == null")
        .step("last", "tell")
    )
    await run(place, flow, {"n": 3})
    assert given["last"] == {"n": 3, "one": 1, "two": 1}


async def test_an_output_gives_a_name_to_what_is_no_object(place: Engine) -> None:
    flow = (
        Flow("named", data="context")
        .step("lost", "count")
        .step("kept", "count", output={"total": "response", "of": "context.n"})
        .step("last", "tell")
    )
    await run(place, flow, {"n": 3})
    assert given["last"] == {"n": 3, "total": 7, "of": 3}


async def test_a_step_is_given_what_its_mapping_chooses(place: Engine) -> None:
    flow = (
        Flow("chosen")
        .step("one", "tell", input={"n": "input.n", "missing": "input.nothing"})
        .step("two", "tell", input={"begun_with": "context.n", "before": "input.one"})
        .wait_event("paid")
        .step("three", "tell", input={"payment": "input.payment", "begun_with": "context.n"})
        .fork("split", Branch().step("left", "tell", input={"n": "context.n"}), Branch().step("right", "tell"))
        .join("met")
        .step("last", "tell", input={"left": "input.outputs.left.left", "n": "context.n"})
    )
    done = await run(place, flow, {"n": 5}, ("paid", {"payment": 9}))
    assert done.status == "completed"
    assert given == {
        "one": {"n": 5, "missing": None},
        "two": {"begun_with": 5, "before": 1},
        "three": {"payment": 9, "begun_with": 5},
        "left": {"n": 5},
        "right": {"three": 1},
        "last": {"left": 1, "n": 5},
    }
    assert replays(place) == []


@pytest.mark.parametrize("data", ["value", "context"])
async def test_a_compensation_is_given_what_the_step_was_given(place: Engine, data: Any) -> None:
    flow = (
        Flow("back", data=data)
        .step("one", "tell", undo=Undo("tell", name="undo"), input={"n": "context.n"})
        .step("two", "refuse")
    )
    done = await run(place, flow, {"n": 5})
    assert (done.status, given["undo"]) == ("failed", {"input": {"n": 5}, "output": {"one": 1}})
    assert given["two"] == ({"one": 1} if data == "value" else {"n": 5, "one": 1})
    assert replays(place) == []


FULL = (
    Flow("full", data="context")
    .step("one", "tell", input={"n": "input.n"}, output={"m": "response.m"})
    .sub_flow("child", "other", input={"m": "context.m"})
    .build()
)


def test_it_is_printed_stored_and_read_back() -> None:
    made: dict[str, Any] = {}
    exec(code_of(FULL), made)
    assert made["flow"] == FULL
    assert read_source(decode(encode(FULL.source, ""), "")) == FULL
    graph = lower(FULL)
    assert (graph.policy.data, graph.nodes[0].input, graph.nodes[0].output) == (
        "context",
        {"n": "input.n"},
        {"m": "response.m"},
    )


def test_a_flow_that_says_nothing_of_data_is_stored_as_before() -> None:
    source = Flow("plain").step("one", "tell").build().source
    assert source.keys() == {"kind", "name", "version", "items"}
    assert not {"input", "output"} & source["items"][0].keys()


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"input": {"n": "input."}}, "steps.one.input.n@5"),
        ({"input": {"n": "response.n"}}, "steps.one.input.n@0"),
        ({"input": {"n": "entity.n"}}, "steps.one.input.n@0"),
        ({"output": {"n": "response. "}}, "steps.one.output.n@8"),
    ],
)
def test_a_mapping_that_cannot_be_read_is_refused_with_its_place(options: Any, place: str) -> None:
    flow = Flow("wrong").step("one", "tell", **options).build()
    with pytest.raises(DefinitionError) as refusal:
        lower(flow)
    assert (refusal.value.code, refusal.value.diagnostics[0].place) == ("STEP_EXPRESSION_INVALID", place)


@pytest.mark.parametrize(
    ("flow", "place"),
    [
        (Flow("wrong", data="both").step("one", "tell"), "data"),  # pyright: ignore[reportArgumentType]
        (Flow("wrong").step("one", "tell", input={"n": 5}), "steps.one.input"),  # pyright: ignore[reportArgumentType]
        (Flow("wrong").step("one", "tell", output=["n"]), "steps.one.output"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_is_no_mapping_is_refused_by_build(flow: Flow, place: str) -> None:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    assert [problem.place for problem in refusal.value.diagnostics] == [place]
