"""What the builder writes, run: the steps that were visited, in order, and what they passed on."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Branch, Context, Engine, Flow
from holdfast.doors.saga.printing import code_of
from holdfast.errors import DefinitionError
from holdfast.testing import advance

pytestmark = pytest.mark.anyio


def step(name: str) -> Branch:
    return Branch().step(name, "keep")


@pytest.fixture
async def place(engine: Engine) -> Engine:
    @engine.handler("keep")
    async def keep(ctx: Context, data: Any) -> Any:
        return data

    @engine.handler("name")
    async def name(ctx: Context, data: Any) -> str:
        return ctx.step

    return engine


async def run(engine: Engine, flow: Flow, data: Any = None) -> Any:
    published = await engine.publish(flow.build())
    started = await engine.start(published.name, data)
    await engine.drain(timeout=30)
    return await engine.get(started.id)


async def visited(engine: Engine, id: str) -> list[str]:
    return [found.name for found in await engine.steps(id, all=True)]


OPEN = Flow("open").condition("big", "input.n > 9", otherwise=step("small")).step("large", "keep").step("last", "keep")
BACK = Flow("back").condition("big", "input.n > 9", otherwise=step("small").rejoin()).step("last", "keep")
MARK = (
    Flow("mark")
    .condition("big", "input.n > 9", otherwise=step("small"))
    .step("large", "keep")
    .rejoin()
    .step("last", "keep")
)


@pytest.mark.parametrize(
    ("flow", "n", "expected"),
    [
        (OPEN, 10, ["big", "large", "last", "end"]),
        (OPEN, 1, ["big", "small", "end"]),
        (BACK, 10, ["big", "last", "end"]),
        (BACK, 1, ["big", "small", "last", "end"]),
        (MARK, 10, ["big", "large", "last", "end"]),
        (MARK, 1, ["big", "small", "last", "end"]),
    ],
)
async def test_a_condition_takes_one_way_and_comes_back_where_it_was_told(
    place: Engine, flow: Flow, n: int, expected: list[str]
) -> None:
    done = await run(place, flow, {"n": n})
    assert (done.status, await visited(place, done.id)) == ("completed", expected)


async def test_branches_meet_with_the_output_of_the_last_step_of_each(place: Engine) -> None:
    branch = Branch().condition("c", "input.n > 9", otherwise=Branch().step("other", "name")).step("one", "name")
    inner = Branch().parallel("both", ("x", "name"), ("y", "name"))
    flow = Flow("fork").fork("split", branch, Branch().step("two", "name"), inner).join("met")
    done = await run(place, flow, {"n": 1})
    assert done.status == "completed"
    met = done.data["outputs"].pop("both#join")
    assert (done.data["outputs"], met["outputs"]) == ({"other": "other", "two": "two"}, {"x": "x", "y": "y"})


async def test_a_false_condition_at_the_end_of_a_branch_arrives_at_the_join(place: Engine) -> None:
    flow = Flow("short").fork("split", Branch().condition("c", "input.n > 9").step("a", "name"), step("b")).join("met")
    done = await run(place, flow.step("last", "keep"), {"n": 1})
    assert (done.status, done.data["completed"]) == ("completed", 2)
    assert "a" not in await visited(place, done.id)


async def test_a_flow_may_end_in_its_branches(place: Engine) -> None:
    flow = Flow("loose").fork("split", step("a").fork("in", step("b"), step("c")), step("d"))
    done = await run(place, flow)
    assert done.status == "completed"
    assert {"a", "b", "c", "d"} <= set(await visited(place, done.id))


async def test_it_waits_for_events_moments_people_and_other_flows(place: Engine) -> None:
    await place.publish(Flow("child").step("inside", "keep").build())
    flow = (
        Flow("waits")
        .wait_event("paid")
        .sleep("night", 3600)
        .sleep("pause", after="input.seconds")
        .sub_flow("other", "child", input={"seen": "input.seconds"})
        .human("sign")
    )
    waiting = await run(place, flow)
    await place.signal(waiting.id, "paid", {"seconds": 60})
    await place.drain(timeout=30)
    for seconds in (3601, 61):
        await advance(place, seconds=seconds)
        await place.drain(timeout=30)
    [task] = await place.tasks(waiting.id)
    await place.decide(task.id, by="ann", decision="confirmed")
    await place.drain(timeout=30)
    done = await place.get(waiting.id)
    assert (done.status, done.data) == ("completed", {"seen": 60})


async def test_a_published_flow_can_be_printed_back(place: Engine) -> None:
    """The source goes through the database as JSON and still builds the same flow."""
    built = MARK.build()
    await place.publish(built)
    namespace: dict[str, Any] = {}
    exec(code_of((await place.flow("mark")).source), namespace)
    assert namespace["flow"] == built


# --- flows that start each other --------------------------------------------------------------------------------------


async def test_flows_that_start_each_other_end_at_a_depth(engine: Engine) -> None:
    """Each decides to go on, so nothing is wrong with the definitions."""
    for name, other in (("ping", "pong"), ("pong", "ping")):
        await engine.publish(Flow(name).condition("on", "input.n > 0").sub_flow("next", other).build())
    top = await engine.start("ping", {"n": 1})
    await engine.drain(timeout=60)
    assert (await engine.get(top.id)).status == "failed"
    found = (await engine.list(limit=100)).items
    assert (len(found), {one.status for one in found}) == (33, {"failed"})
    [deepest] = [one for one in found if not (await engine.list(parent=one.id)).items]
    [step] = [step for step in await engine.steps(deepest.id) if step.name == "next"]
    assert step.error["code"] == "SUBFLOW_TOO_DEEP"


async def test_a_sub_flow_too_deep_takes_the_error_edge(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.commit.follow_ups.DEEPEST", 2)
    nodes = [{"id": "again", "kind": "sub_flow", "child": {"flow": "self"}}, {"id": "end", "kind": "end"}]
    edges = [{"id": on, "source": "again", "target": "end", "on": on} for on in ("completed", "error")]
    await engine.publish({"name": "self", "entry": "again", "nodes": nodes, "edges": edges})
    await engine.start("self")
    await engine.drain(timeout=30)
    assert [one.status for one in (await engine.list()).items] == ["completed"] * 3


async def test_a_cycle_through_published_flows_is_refused(engine: Engine) -> None:
    await engine.publish(Flow("a").step("one", "do").sub_flow("into", "b").build())
    await engine.publish(Flow("b").fork("f", Branch().sub_flow("x", "c"), Branch().step("y", "do")).join("j").build())
    with pytest.raises(DefinitionError, match=r"FLOW_CYCLE.*'c' → 'a' → 'b' → 'c'"):
        await engine.publish(Flow("c").sub_flow("back", "a").build())
    await engine.publish(Flow("c").human("ask").sub_flow("back", "a").build())  # a person decides
    await engine.publish(Flow("c", version=2).sub_flow("back", "a", 9).build())  # another version
    with pytest.raises(DefinitionError, match="FLOW_CYCLE"):
        await engine.publish(Flow("a", version=9).sub_flow("into", "c").build())


async def test_a_sub_flow_that_is_not_published_is_told(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    published = await engine.publish(Flow("a").sub_flow("into", "typo").sub_flow("self", "b", 3).build())
    assert published.unknown_flows == ["typo", "b"]
    assert "'a' version 1 starts the flow 'typo', which is not published" in caplog.text
    for version in (1, 3):
        await engine.publish(Flow("b", version=version).step("s", "do").build())
    again = await engine.publish(Flow("a").sub_flow("into", "typo").sub_flow("self", "b", 3).build())
    assert (again.new, again.unknown_flows) == (False, ["typo"])
