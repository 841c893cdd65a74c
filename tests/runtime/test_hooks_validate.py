"""Inputs are checked before anything is stored or called, and a refusal says where the misfit is."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel, Field

from holdfast import Context, Engine, Flow, Retry, Validate
from holdfast.errors import Conflict, DefinitionError, HoldfastError, InputInvalid, Refused
from holdfast.runtime.people.forms import misfits_of_form
from holdfast.runtime.schemas.schemas import MOST_MISFITS, check_of, told
from holdfast.store.tasks import Task
from running import Evidence

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "exclusiveMinimum": 0},
        "lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}},
    },
    "required": ["amount"],
}


class Line(BaseModel):
    sku: str


class Order(BaseModel):
    amount: float = Field(gt=0)
    lines: list[Line] = []


@dataclass
class Plain:
    amount: float


GOOD = {"amount": 5, "lines": [{"sku": "a"}]}
BAD = {"amount": 5, "lines": [{"sku": "a"}, {}]}


async def echo(ctx: Context, data: Any) -> Any:
    return data


ORDER = Flow("order").step("charge", echo, retry=Retry(attempts=3)).build()


@pytest.mark.parametrize(("schema", "path"), [(SCHEMA, "$.lines[1]"), (Order, "$.lines[1].sku")])
async def test_a_start_that_does_not_fit_is_refused_and_nothing_is_stored(
    engine: Engine, evidence: Evidence, schema: Any, path: str
) -> None:
    engine.use(Validate(flow="order", schema=schema))
    await engine.publish(ORDER)
    for start in (engine.start("order", BAD), engine.start_many("order", [GOOD, BAD])):
        with pytest.raises(InputInvalid) as refused:
            await start
        assert refused.value.code == "INPUT_INVALID"
        assert refused.value.detail["path"] == path
        assert refused.value.misfits[0].path == path
        assert path in refused.value.message
    assert evidence.ask("select count(*) from holdfast.instances") == 0
    assert (await engine.start("order", GOOD)).status == "pending"


async def test_a_start_in_the_callers_transaction_is_checked_too(engine: Engine, holdfast_dsn: str) -> None:
    engine.use(Validate(flow="order", schema=SCHEMA))
    await engine.publish(ORDER)
    async with await psycopg.AsyncConnection.connect(holdfast_dsn) as conn:
        with pytest.raises(InputInvalid):
            await engine.start("order", {"amount": 0}, conn=conn)
        assert (await engine.start("order", GOOD, conn=conn)).status == "pending"


async def test_other_flows_are_left_alone(engine: Engine) -> None:
    engine.use(Validate(flow="order", schema=SCHEMA), Validate(flow="order", step="charge", schema=SCHEMA))
    await engine.publish(Flow("other").step("charge", echo).build())
    other = await engine.start("other", {"whatever": 1})
    await engine.drain(timeout=30)
    assert (await engine.get(other.id)).status == "completed"


@pytest.mark.parametrize("schema", [SCHEMA, Order, Plain])
async def test_a_step_whose_input_does_not_fit_fails_without_a_call(engine: Engine, schema: Any) -> None:
    calls: list[Any] = []

    @engine.handler("charge")
    async def charge(ctx: Context, data: Any) -> Any:
        calls.append(data)

    engine.use(Validate(flow="order", step="charge", schema=schema))
    await engine.publish(Flow("order").step("charge", "charge", retry=Retry(attempts=5)).build())
    bad = await engine.start("order", {"amount": "much"})
    good = await engine.start("order", GOOD)
    await engine.drain(timeout=30)
    failed = await engine.get(bad.id)
    assert (failed.status, failed.error["code"]) == ("failed", "INPUT_INVALID")
    assert "$.amount" in failed.error["message"]
    [step] = [s for s in await engine.steps(bad.id) if s.name == "charge"]
    assert step.attempts == 1
    assert (await engine.get(good.id)).status == "completed"
    assert calls == [GOOD]


# Schemas


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "banana"},
        {"type": "string", "pattern": "("},
        {"$ref": "https://127.0.0.1:1/schema.json"},
        {"$ref": "#/$defs/nowhere"},
        42,
        None,
        lambda: None,
    ],
)
def test_what_is_no_schema_is_refused_at_once(schema: Any) -> None:
    with pytest.raises(HoldfastError) as refused:
        Validate(flow="order", schema=schema)
    assert refused.value.code == "SCHEMA_INVALID"


@pytest.mark.parametrize(
    ("options", "named"),
    [({"flow": None}, "flow"), ({"flow": ""}, "flow"), ({"flow": 5}, "flow"), ({"flow": "order", "step": 5}, "step")],
)
def test_a_check_needs_to_know_of_what(options: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused, match=f"The {named} of a Validate") as refused:
        Validate(**options, schema=SCHEMA)
    assert refused.value.code == "TEXT_INVALID"


class Strict(BaseModel, strict=True):
    at: datetime
    prices: dict[int, str]


@dataclass
class Dated:
    at: datetime
    prices: dict[int, str]


@pytest.mark.parametrize("wanted", [Strict, Dated])
def test_types_read_json_as_json(wanted: Any) -> None:
    check = check_of(wanted)
    assert check({"at": "2026-01-01T00:00:00Z", "prices": {"1": "x"}}) == []
    assert [m.path for m in check({"at": "yesterday", "prices": {}})] == ["$.at"]


def test_a_key_that_does_not_fit_is_told_with_its_place() -> None:
    moment = "2026-01-01T00:00:00Z"
    assert check_of(Dated)({"at": moment, "prices": {"a": "x"}}) == [
        ("$.prices", "Expected `int`, got `str` as a key"),
    ]
    assert check_of(Dated)({"at": moment, "prices": {"1": 5}})[0].path == "$.prices[...]"
    assert check_of(dict[int, str])({"a": "x"})[0].path == "$"
    assert check_of(Dated)([]) == [("$", "Expected `object`, got `array`")]


def test_misfits_are_told_up_to_a_limit() -> None:
    misfits = check_of({"items": {"type": "string"}})(list(range(100)))
    assert len(misfits) == MOST_MISFITS
    assert [m.path for m in misfits[:2]] == ["$[0]", "$[1]"]
    assert told(misfits).endswith(f"and {MOST_MISFITS - 3} more.")
    assert told(misfits[:1]).endswith(".")


def test_the_same_schema_is_compiled_once() -> None:
    assert check_of({"type": "object", "x": 1}) is check_of({"x": 1, "type": "object"})


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (True, object, True),
        (False, 1, False),
        ({}, None, True),
        ({"format": "email"}, "nobody", False),
        ({"format": "email"}, "ann@example.org", True),
        ({"const": 1}, 1.0, True),
        ({"type": "integer"}, 2**60, True),
        ({"multipleOf": 0.1}, 0.3, True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}, [1], False),
        ({"$defs": {"a": {"type": "null"}}, "$ref": "#/$defs/a"}, None, True),
    ],
)
def test_json_schemas_of_all_drafts(schema: Any, value: Any, fits: bool) -> None:
    assert (check_of(schema)(None if value is object else value) == []) is fits


def test_a_pattern_that_would_take_for_ever_gives_up() -> None:
    check, began = check_of({"pattern": r"^(?=(a+)+$)(a|aa)+b$"}), time.monotonic()
    assert check("a" * 60 + "!") != []
    assert time.monotonic() - began < 5


# Forms of tasks


FORM = {
    "type": "object",
    "properties": {"limit": {"type": "integer", "minimum": 0}},
    "required": ["limit"],
    "additionalProperties": False,
}


async def ask(engine: Engine, form: Any = FORM) -> Task:
    await engine.publish(Flow("credit").human("approve", form=form).step("pay", echo).build())
    instance = await engine.start("credit", {"amount": 5})
    await engine.drain(timeout=30)
    [task] = await engine.tasks(instance.id)
    return task


@pytest.mark.parametrize(
    ("data", "path"), [({"limit": -1}, "$.limit"), ({"limit": "x"}, "$.limit"), ({}, "$"), (None, "$"), ([1], "$")]
)
async def test_a_decision_whose_data_does_not_fit_the_form_is_refused(engine: Engine, data: Any, path: str) -> None:
    task = await ask(engine)
    with pytest.raises(InputInvalid) as refused:
        await engine.decide(task.id, by="ann", decision="confirmed", data=data)
    assert isinstance(refused.value, Refused)
    assert (refused.value.code, refused.value.detail["path"]) == ("FORM_MISFIT", path)
    assert (await engine.task(task.id)).status == "open"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"decision": "confirmde"}, "DECISION_NOT_OFFERED"),
        ({"roles": ["clerk"]}, "TASK_ROLE_MISSING"),
        ({"by": "starter"}, "SELF_APPROVAL"),
        ({"capabilities": []}, "CAPABILITY_MISSING"),
        ({}, "FORM_MISFIT"),
    ],
)
async def test_who_and_what_come_before_the_form(
    engine: Engine, holdfast_dsn: str, wrong: dict[str, Any], code: str
) -> None:
    node = {"id": "approve", "kind": "human", "form": FORM, "roles": ["manager"], "self_approval": False}
    graph = {
        "name": "credit",
        "entry": "approve",
        "nodes": [{**node, "capabilities": ["approve"]}, {"id": "end", "kind": "end"}],
        "edges": [{"id": "a", "source": "approve", "target": "end"}],
    }
    await engine.publish(graph)
    instance = await engine.start("credit", {"amount": 5}, by="starter")
    await engine.drain(timeout=30)
    [task] = await engine.tasks(instance.id)
    right: dict[str, Any] = {"by": "ann", "decision": "confirmed", "roles": ["manager"], "capabilities": ["approve"]}
    async with await psycopg.AsyncConnection.connect(holdfast_dsn) as conn:
        for more in ({}, {"conn": conn}):
            with pytest.raises(HoldfastError) as refused:
                await engine.decide(task.id, **{**right, **wrong, **more})
            assert refused.value.code == code
    assert (await engine.task(task.id)).status == "open"


async def test_a_task_in_other_hands_is_told_before_the_form(engine: Engine) -> None:
    task = await ask(engine)
    await engine.claim(task.id, by="ben")
    with pytest.raises(Conflict, match="TASK_CLAIMED"):
        await engine.decide(task.id, by="ann", decision="confirmed")


async def test_a_decision_that_fits_goes_on_with_its_data(engine: Engine) -> None:
    task = await ask(engine)
    await engine.decide(task.id, by="ann", decision="confirmed", data={"limit": 3})
    await engine.drain(timeout=30)
    assert (await engine.get(task.instance_id)).data == {"limit": 3}


async def test_a_task_that_is_over_is_told_as_that(engine: Engine) -> None:
    task = await ask(engine)
    await engine.decide(task.id, by="ann", decision="confirmed", data={"limit": 3})
    with pytest.raises(Conflict, match="TASK_OVER"):
        await engine.decide(task.id, by="ben", decision="confirmed")


async def test_whoever_rejects_need_not_fill_in_the_form(engine: Engine) -> None:
    task = await ask(engine)
    with pytest.raises(InputInvalid):
        await engine.decide(task.id, by="ann", decision="rejected", data={"limit": "x"})
    assert (await engine.decide(task.id, by="ann", decision="rejected")).decision == "rejected"


async def test_a_decision_in_the_callers_transaction_is_checked_too(engine: Engine, holdfast_dsn: str) -> None:
    task = await ask(engine)
    async with await psycopg.AsyncConnection.connect(holdfast_dsn) as conn:
        with pytest.raises(InputInvalid):
            await engine.decide(task.id, by="ann", decision="confirmed", data={"limit": -1}, conn=conn)


async def test_a_form_that_is_no_schema_is_not_published(engine: Engine) -> None:
    with pytest.raises(DefinitionError) as refused:
        await ask(engine, {"type": "nonsense"})
    [found] = refused.value.diagnostics
    assert (found.code, found.place) == ("BAD_FORM", "nodes.approve.form.type")
    assert "no JSON Schema" in found.message


def test_a_task_whose_form_is_no_schema_accepts_anything(caplog: pytest.LogCaptureFixture) -> None:
    """None can be published; one that got there all the same must not make its task undecidable."""
    form = {"type": "wizard", "pages": 3}
    assert asyncio.run(misfits_of_form(form, "approve", "confirmed", b'{"any": 1}')) == ()
    assert "is not enforced" in caplog.text
