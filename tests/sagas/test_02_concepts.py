"""Chapter 2 of the text: statuses of an instance, fields of a step's definition, statuses of a step."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shop import ALWAYS, House, Shop

from holdfast import Branch, Engine, Flow, Retry, Undo
from holdfast.errors import DefinitionError
from holdfast.graph.model import Edge, Node

pytestmark = pytest.mark.anyio


# --- 2.1 statuses of an instance --------------------------------------------------------------------------------------


async def test_terminal_completed(shop: Shop) -> None:
    assert (await shop.run(shop.flow().step("a", "do"))).status == "completed"


async def test_terminal_failed(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    assert (await shop.run(shop.flow().step("a", "do"))).status == "failed"


async def test_terminal_cancelled(shop: Shop) -> None:
    id = (await shop.run(shop.flow().human("h"))).id
    assert (await shop.engine.cancel(id)).status == "cancelled"


async def test_terminal_aborted(shop: Shop) -> None:
    id = (await shop.run(shop.flow().human("h"))).id
    assert (await shop.engine.abort(id)).status == "aborted"


async def test_active_pending(shop: Shop) -> None:
    """Stored, and nobody has decided upon it yet: an engine without a worker only stores."""
    await shop.engine.publish(shop.flow().step("a", "do").build())
    async with Engine(shop.engine.dsn) as client:
        started = await client.start(shop.name)
    assert started.status == "pending"
    assert (await shop.engine.wait(started.id, timeout=30)).status == "completed"


async def test_active_running(shop: Shop) -> None:
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do"))
    await shop.begun("a")
    assert (await shop.look(id)).status == "running"
    shop.let_go("a")
    await shop.over(id)


async def test_suspended_dlq(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    assert (await shop.run(shop.flow(dlq=True).step("a", "do"))).status == "dlq"


# --- 2.2 fields of a step's definition --------------------------------------------------------------------------------


async def graph_of(house: House, flow: Flow) -> tuple[dict[str, Node], list[Edge]]:
    """As it was published."""
    published = await house.engine.publish(flow.build())
    graph = (await house.engine.flow(published.name)).graph
    return graph.nodes, list(graph.edges.values())


async def test_field_name_is_unique(shop: Shop) -> None:
    with pytest.raises(DefinitionError, match="twice"):
        shop.flow().step("same", "do").fork("f", Branch().step("same", "do"), Branch().step("b", "do")).join(
            "j"
        ).build()


async def test_field_type(house: House, shop: Shop) -> None:
    flow = (
        shop.flow()
        .step("task", "do")
        .save_point("point")
        .condition("condition", "input.n > 1", Branch().step("small", "do"))
        .parallel("parallel", ("t1", "do"), ("t2", "do"))
        .fork("fork", Branch().step("x", "do"), Branch().step("y", "do"))
        .join("join", "any")
        .human("human")
    )
    nodes, _ = await graph_of(house, flow)
    kinds = {name: nodes[name].kind for name in ("task", "parallel", "fork", "join", "point", "condition", "human")}
    assert kinds == {
        "task": "task", "parallel": "split", "fork": "split", "join": "join", "point": "save_point",
        "condition": "condition", "human": "human",
    }  # fmt: skip


async def test_field_handler(shop: Shop) -> None:
    async def by_function(ctx: Any, data: Any) -> str:
        return "called"

    definition = shop.flow().step("a", by_function).build()
    assert definition.handlers == {"by_function": by_function}


async def test_field_undo_names_the_compensation(house: House, shop: Shop) -> None:
    nodes, edges = await graph_of(house, shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do"))
    assert (nodes["a"].undo, nodes["b"].undo, nodes["una"].kind) == ("una", None, "compensation")
    assert all("una" not in (edge.source, edge.target) for edge in edges)


async def test_field_max_retries_counts_all_calls(house: House, shop: Shop) -> None:
    nodes, _ = await graph_of(house, shop.flow().step("a", "do", retry=Retry(attempts=3)))
    assert nodes["a"].retry is not None
    assert nodes["a"].retry.calls == 3


async def test_field_no_idempotent_is_false_by_default(house: House, shop: Shop) -> None:
    nodes, _ = await graph_of(house, shop.flow().step("a", "do").step("b", "do", idempotent=False))
    assert (nodes["a"].idempotent, nodes["b"].idempotent) == (True, False)


async def test_field_next_is_the_normal_flow(house: House, shop: Shop) -> None:
    _, edges = await graph_of(house, shop.flow().step("a", "do").then("b", "do"))
    assert ("a", "b") in [(edge.source, edge.target) for edge in edges]


async def test_field_else_is_the_false_branch(house: House, shop: Shop) -> None:
    flow = shop.flow().condition("c", "input.n > 1", Branch().step("no", "do")).then("yes", "do")
    _, edges = await graph_of(house, flow)
    leaving = sorted((e for e in edges if e.source == "c"), key=lambda edge: edge.priority)
    assert [(e.target, e.when) for e in leaving] == [("yes", "input.n > 1"), ("no", None)]


async def test_field_condition_is_an_expression(shop: Shop) -> None:
    with pytest.raises(DefinitionError, match="The expression of 'check' is refused") as refused:
        await shop.engine.publish(shop.flow().condition("check", "input.n >").then("a", "do").build())
    assert refused.value.code == "STEP_EXPRESSION_INVALID"


async def test_field_parallel_lists_the_sub_steps(house: House, shop: Shop) -> None:
    _, edges = await graph_of(house, shop.flow().parallel("group", ("t1", "do"), ("t2", "do")))
    inside = sorted((e for e in edges if e.source == "group"), key=lambda edge: edge.priority)
    assert [edge.target for edge in inside] == ["t1", "t2"]


async def test_field_wait_for_is_every_branch_of_the_fork(house: House, shop: Shop) -> None:
    flow = shop.flow().fork("f", Branch().step("a", "do").step("a2", "do"), Branch().step("b", "do")).join("j")
    _, edges = await graph_of(house, flow)
    assert sorted(edge.source for edge in edges if edge.target == "j") == ["a2", "b"]


@pytest.mark.parametrize("strategy", ["all", "any"])
async def test_field_join_strategy(house: House, shop: Shop, strategy: Any) -> None:
    branches = Branch().step("a", "do"), Branch().step("b", "do")
    nodes, _ = await graph_of(house, shop.flow().fork("f", *branches).join("j", strategy))
    assert nodes["j"].mode == strategy


async def test_field_metadata_is_arbitrary(house: House, shop: Shop) -> None:
    nodes, _ = await graph_of(house, shop.flow().step("a", "do", metadata={"team": "x", "tags": [1, {"k": None}]}))
    assert nodes["a"].metadata == {"team": "x", "tags": [1, {"k": None}]}


# --- 2.3 statuses of a step -------------------------------------------------------------------------------------------


async def test_status_pending_waits_to_be_executed(shop: Shop) -> None:
    """A compensation has its row from the moment it is planned; it is pending until its turn comes."""
    shop.fails = {"b": ALWAYS}
    shop.hold("unb")
    flow = shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do", undo=Undo("do", name="unb"))
    id = await shop.start(flow)
    await shop.begun("unb")
    assert (await shop.look(id))["una"] == "pending"
    shop.let_go("unb")
    assert (await shop.over(id))["una"] == "completed"


async def test_status_running_while_it_executes(shop: Shop) -> None:
    shop.hold("a")
    id = await shop.start(shop.flow().step("a", "do"))
    await shop.begun("a")
    assert (await shop.look(id))["a"] == "running"
    shop.let_go("a")
    await shop.over(id)


async def test_status_completed_after_the_handler_succeeded(shop: Shop) -> None:
    assert (await shop.run(shop.flow().step("a", "do")))["a"] == "completed"


async def test_status_failed_after_the_retries_in_classic_mode(shop: Shop) -> None:
    """The forward row goes on to `compensation`; `failed` is what stays when its compensation fails too."""
    shop.fails = {"a": ALWAYS, "una": ALWAYS}
    story = await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una"), retry=Retry(attempts=2)))
    assert (story["a"], shop.log) == ("failed", ["a", "a", "una"])


async def test_status_failed_stands_while_a_sibling_is_awaited(shop: Shop) -> None:
    shop.fails = {"bad": ALWAYS}
    shop.hold("slow")
    flow = shop.flow().fork("f", Branch().step("slow", "do"), Branch().step("bad", "do")).join("j")
    id = await shop.start(flow)
    await shop.begun("slow", "bad")
    assert (await shop.until_status(id, "rolling_back"))["bad"] == "failed"
    shop.let_go("slow")
    assert (await shop.over(id))["bad"] == "rolled_back"


async def test_status_paused_in_dlq_mode(shop: Shop) -> None:
    shop.fails = {"a": ALWAYS}
    assert (await shop.run(shop.flow(dlq=True).step("a", "do")))["a"] == "paused"


async def test_status_compensation_during_rollback(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    shop.hold("una")
    id = await shop.start(shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do"))
    await shop.begun("una")
    assert (await shop.look(id))["a"] == "compensation"
    shop.let_go("una")
    await shop.over(id)


async def test_status_rolled_back_after_the_compensation(shop: Shop) -> None:
    shop.fails = {"b": ALWAYS}
    assert (await shop.run(shop.flow().step("a", "do", undo=Undo("do", name="una")).step("b", "do")))[
        "a"
    ] == "rolled_back"


@pytest.mark.parametrize("operation", ["cancel", "abort"])
async def test_status_skipped_after_cancel_and_abort(shop: Shop, operation: str) -> None:
    id = (await shop.run(shop.flow().step("a", "do", delay=3600))).id
    await getattr(shop.engine, operation)(id)
    assert (await shop.over(id))["a"] == "skipped"


async def test_status_waiting_decision_of_a_human_step(shop: Shop) -> None:
    assert (await shop.run(shop.flow().human("h")))["h"] == "waiting_decision"


@pytest.mark.parametrize("decision", ["confirmed", "rejected"])
async def test_status_confirmed_and_rejected_after_a_decision(shop: Shop, decision: str) -> None:
    id = (await shop.run(shop.flow().human("h"))).id
    await shop.engine.decide(await shop.task(id), by="ann", decision=decision)
    assert (await shop.look(id))["h"] == decision


async def test_status_cancelled_of_a_branch_that_lost(shop: Shop) -> None:
    """Semantics 7: not in the text's table; only losers of a race and what an escape leaves behind are cancelled."""
    flow = shop.flow().fork("f", Branch().step("quick", "do"), Branch().step("slow", "do", delay=3600)).join("j", "any")
    story = await shop.run(flow)
    assert (story.status, story["slow"], story["quick"]) == ("completed", "cancelled", "completed")


async def test_status_superseded_of_a_run_that_a_requeue_replaced(shop: Shop) -> None:
    """Semantics 4: a requeue opens a new row, the old one stays with its input."""
    shop.fails = {"a": 1}
    story = await shop.run(shop.flow(dlq=True).step("a", "do"))
    await shop.engine.requeue(story.letters[0].id)
    await shop.settle()
    assert (await shop.look(story.id)).runs("a") == ["superseded", "completed"]


async def test_a_sleeping_handler_does_not_hold_up_others(shop: Shop) -> None:
    shop.hold("slow")
    flow = shop.flow().fork("f", Branch().step("slow", "do"), Branch().step("quick", "do")).join("j")
    id = await shop.start(flow)
    await asyncio.wait_for(shop.begun("slow", "quick"), 30)
    shop.let_go("slow")
    assert (await shop.over(id)).status == "completed"
