"""Who may start a workflow, and with what."""

from __future__ import annotations

from typing import Any

import pytest
from steps_graphs import approval

from holdfast import Caller, Context, Engine, Flow
from holdfast.errors import Forbidden, InputInvalid, Refused

pytestmark = pytest.mark.anyio

ORDER = {"order_id": "ord-123"}


@pytest.fixture
async def orders(engine: Engine) -> Engine:
    @engine.handler("process")
    async def process(ctx: Context, data: Any) -> Any:
        return data

    engine.register("notify", process)
    await engine.publish(approval())
    return engine


async def test_a_start_needs_the_capabilities_of_the_workflow(orders: Engine) -> None:
    for lacking in ((), ["orders:see"], "orders:see"):
        with pytest.raises(Forbidden) as refusal:
            await orders.start("orders.approval", ORDER, caller=Caller(capabilities=lacking))
        assert (refusal.value.code, refusal.value.detail["missing"]) == (
            "CAPABILITY_MISSING", ["orders:approve:execute"])  # fmt: skip
    assert (await orders.list()).items == []
    await orders.start("orders.approval", ORDER, caller=Caller(capabilities=("orders:approve:execute", "more")))
    await orders.start("orders.approval", ORDER)  # trusted code


async def test_a_flow_that_names_no_capability_is_for_everybody(engine: Engine) -> None:
    engine.register("work", lambda ctx, data: data)
    await engine.publish(Flow("order").step("work", "work").build())
    assert (await engine.start("order", {}, caller=Caller(capabilities=()))).status == "pending"


@pytest.mark.parametrize(
    ("input", "path"),
    [(None, "$"), ({"order_id": 7}, "$.order_id"), ({**ORDER, "amount": "x"}, "$.amount"), ([1], "$")],
)
async def test_the_input_must_fit_its_schema(orders: Engine, input: Any, path: str) -> None:
    for start in (orders.start("orders.approval", input), orders.start_many("orders.approval", [ORDER, input])):
        with pytest.raises(InputInvalid) as refusal:
            await start
        assert (refusal.value.code, refusal.value.misfits[0].path) == ("INPUT_INVALID", path)
    assert (await orders.list()).items == []


async def test_without_a_schema_the_input_is_any_object(engine: Engine) -> None:
    await engine.publish({**approval(), **_without_schema()})
    with pytest.raises(InputInvalid):
        await engine.start("orders.approval", ["no object"])
    assert (await engine.start("orders.approval", {"anything": True})).status == "pending"


def _without_schema() -> dict[str, Any]:
    first, *others = approval()["nodes"]
    return {"nodes": [{**first, "metadata": {}}, *others]}


@pytest.mark.parametrize("key", [None, "k-1"])
async def test_the_facts_of_the_request_are_attributes(orders: Engine, key: str | None) -> None:
    async with orders.worker():
        started = await orders.start(
            "orders.approval",
            ORDER,
            key=key,
            attributes={"customer": "c1"},
            caller=Caller(partition="eu", correlation="r-1"),
        )
        stored = await orders.settle(started.id, timeout=20)
    facts = {"customer": "c1", "partition_id": "eu", "correlation_id": "r-1"}
    assert (started.attributes, stored.attributes) == (facts, facts)


async def test_attributes_are_names_and_values(orders: Engine) -> None:
    for attributes, code in (
        ({"partition_id": "eu"}, "ATTRIBUTE_RESERVED"),
        (["no names"], "ATTRIBUTE_INVALID"),
        ({"": 1}, "ATTRIBUTE_INVALID"),
        ({"x" * 201: 1}, "ATTRIBUTE_INVALID"),
    ):
        with pytest.raises(Refused) as refusal:
            await orders.start("orders.approval", ORDER, attributes=attributes)  # type: ignore[arg-type]
        assert refusal.value.code == code


async def test_a_caller_starts_under_its_own_name_only(orders: Engine) -> None:
    started = await orders.start("orders.approval", ORDER, caller=Caller("alice"))
    assert started.created_by == "alice"
    with pytest.raises(Refused) as refused:
        await orders.start("orders.approval", ORDER, by="ben", caller=Caller("alice"))
    assert refused.value.code == "OPTION_MISPLACED"
