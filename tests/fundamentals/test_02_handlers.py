"""Handlers: what they are given, in which type, and what they may answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, Retry
from holdfast.errors import HoldfastError

pytestmark = pytest.mark.anyio


@dataclass
class Parcel:
    weight: float
    fragile: bool = False


class Label(msgspec.Struct):
    text: str


class Price(pydantic.BaseModel):
    amount: int
    currency: str = "EUR"


async def weigh(ctx: Context, parcel: Parcel) -> Label:
    return Label(f"{parcel.weight:g} kg")


async def price(ctx: Context, label: Label) -> Price:
    return Price(amount=len(label.text))


async def pay(ctx: Context, price: Price) -> dict[str, Any]:
    return {"paid": price.amount, "in": price.currency}


async def test_annotated_inputs_arrive_in_their_type(engine: Engine) -> None:
    await engine.publish(Flow("parcel").step("weigh", weigh).step("price", price).step("pay", pay).build())
    parcel = await engine.start("parcel", Parcel(2.5))
    await engine.drain(timeout=30)
    assert (await engine.get(parcel.id)).data == {"paid": 6, "in": "EUR"}
    assert [s.output for s in await engine.steps(parcel.id) if s.behaviour == "work"][:2] == [
        {"text": "2.5 kg"},
        {"amount": 6, "currency": "EUR"},
    ]


async def test_an_input_of_another_shape_fails_the_step(engine: Engine) -> None:
    flows = {"weigh": weigh, "pay": pay}
    for name, handler in flows.items():
        await engine.publish(Flow(name).step(name, handler, retry=Retry(attempts=3)).build())
    for name, wrong in (("weigh", {"weight": "heavy"}), ("pay", {"amount": "much"})):
        instance = await engine.start(name, wrong)
        await engine.drain(timeout=30)
        instance = await engine.get(instance.id)
        assert (instance.status, instance.error["code"]) == ("failed", "INPUT_INVALID")
        assert next(iter(wrong)) in instance.error["message"]
        [step] = await engine.steps(instance.id)
        assert step.attempts == 1  # it would not fit the next time either


class Strict(pydantic.BaseModel, strict=True):
    at: datetime
    prices: dict[int, str]


@dataclass
class Dated:
    at: datetime
    prices: dict[int, str]


@pytest.mark.parametrize("wanted", [Strict, Dated])
async def test_what_json_has_no_type_for_is_read_from_text(engine: Engine, wanted: Any) -> None:
    seen: list[Any] = []

    async def look(ctx: Context, data: Any) -> None:
        seen.append(data)

    look.__annotations__["data"] = wanted
    await engine.publish(Flow("look").step("look", look).build())
    instance = await engine.start("look", {"at": "2026-01-01T00:00:00Z", "prices": {"1": "x"}})
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).status == "completed"
    assert seen == [wanted(at=datetime(2026, 1, 1, tzinfo=UTC), prices={1: "x"})]


class Shop:
    def __init__(self) -> None:
        self.charged: list[str] = []

    async def charge(self, ctx: Context, data: Any) -> None:
        self.charged.append(f"{ctx.flow} {ctx.step}")


async def test_methods_are_handlers_wherever_they_are_named(engine: Engine) -> None:
    shop = Shop()
    for _ in range(2):  # as when a module that publishes is imported again
        await engine.publish(Flow("order").step("one", shop.charge).step("two", shop.charge).build())
    await engine.publish(Flow("other").step("only", shop.charge).build())
    for flow in ("order", "other"):
        await engine.start(flow)
        await engine.drain(timeout=30)
    assert shop.charged == ["order one", "order two", "other only"]
    with pytest.raises(HoldfastError, match="HANDLER_DUPLICATE"):
        engine.register("charge", Shop().charge)


async def test_the_context_tells_what_is_being_done(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    seen: dict[str, Any] = {}

    async def look(ctx: Context, data: Any) -> None:
        seen.update(
            instance=ctx.instance,
            instance_id=ctx.instance_id,
            step=ctx.step,
            attempt=ctx.attempt,
            flow=ctx.flow,
            org=ctx.org,
            ours=ctx.heartbeat(),
        )
        ctx.logger.warning("looking around")

    await engine.publish(Flow("looking").step("look", look).build())
    instance = await engine.start("looking")
    with caplog.at_level(logging.WARNING, "holdfast.handlers"):
        await engine.drain(timeout=30)

    assert seen == {
        "instance": instance.id,
        "instance_id": UUID(instance.id),
        "step": "look",
        "attempt": 1,
        "flow": "looking",
        "org": "default",
        "ours": True,
    }
    [record] = [r for r in caplog.records if r.message == "looking around"]
    assert (record.instance, record.step) == (instance.id, "look")  # type: ignore[attr-defined]


async def test_the_idempotency_key_tells_large_integers_apart(engine: Engine) -> None:
    keys: set[str] = set()

    @engine.handler("look")
    def look(ctx: Context, data: Any) -> None:
        keys.add(ctx.idempotency_key)

    await engine.publish(Flow("large").step("look", "look").build())
    for number in (2**60, 2**60 + 1, 2**60):
        started = await engine.start("large", {"deep": [{"number": number}]})
        await engine.drain(timeout=30)
        assert (await engine.get(started.id)).status == "completed"
    assert len(keys) == 3, "one of its own for each instance"


async def test_the_idempotency_key_survives_retries_and_differs_between_steps(engine: Engine) -> None:
    keys: dict[str, list[str]] = {"first": [], "second": []}

    async def charge(ctx: Context, data: Any) -> Any:
        keys[ctx.step].append(ctx.idempotency_key)
        if ctx.attempt < 3:
            raise ConnectionError("the bank is away")
        return data

    await engine.publish(
        Flow("pay")
        .step("first", charge, retry=Retry(attempts=3))
        .step("second", charge, retry=Retry(attempts=3))
        .build()
    )
    payment = await engine.start("pay", {"amount": 5})
    other = await engine.start("pay", {"amount": 5})
    await engine.drain(timeout=30)

    assert {(await engine.get(i.id)).status for i in (payment, other)} == {"completed"}
    assert len(keys["first"]) == len(keys["second"]) == 6
    assert len(set(keys["first"])) == 2  # one per instance
    assert not set(keys["first"]) & set(keys["second"])


async def test_a_handler_may_rule_out_another_call(engine: Engine) -> None:
    calls: list[int] = []

    async def refuse(ctx: Context, data: Any) -> None:
        calls.append(ctx.attempt)
        raise DoNotRetry("the account is closed")

    await engine.publish(Flow("refusing").step("refuse", refuse, retry=Retry(attempts=5)).build())
    instance = await engine.start("refusing")
    await engine.drain(timeout=30)

    instance = await engine.get(instance.id)
    assert calls == [1]
    assert (instance.status, instance.error["message"]) == ("failed", "the account is closed")


async def test_an_error_is_kept_with_its_code_and_traceback(engine: Engine) -> None:
    class Declined(Exception):
        code = "CARD_DECLINED"

    def charge(ctx: Context, data: Any) -> None:
        raise Declined("no credit")

    await engine.publish(Flow("charge").step("charge", charge).build())
    instance = await engine.start("charge")
    await engine.drain(timeout=30)

    [step] = [s for s in await engine.steps(instance.id) if s.name == "charge"]
    assert (step.status, step.error["code"], step.error["message"]) == ("rolled_back", "CARD_DECLINED", "no credit")
    assert "Declined" in step.error["detail"]["traceback"]
    assert step.error["detail"]["traceback"].startswith(f'  File "{__file__}"'), "from the handler on"
