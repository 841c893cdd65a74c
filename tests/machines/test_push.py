"""Consumers that are pushed to: signed webhooks, answers that count, and an outage that counts for nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from orders import BLUEPRINT, deliveries

sys.path.append(str(Path(__file__).parent.parent / "effects"))

from effect_servers import Receiver, reply, running_receiver

from holdfast import EffectOptions, Engine, Machine, webhooks
from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


async def office(engine: Engine, receiver: Receiver, path: str = "/ok", **wishes: Any) -> None:
    engine.effect_options = EffectOptions(allow=(receiver.host,), secrets=lambda _org, _name: SECRET)
    await engine.import_machine(Machine.load(BLUEPRINT))
    await engine.register_consumer("prod", "billing", way="push", target={"url": receiver.url(path)}, **wishes)
    await engine.drain(timeout=30)


def recheck_now(engine: Engine) -> None:
    """The time until the next probe is over."""
    with psycopg.connect(engine.dsn) as db:
        db.execute("update holdfast.consumer_beats set reachable_at = clock_timestamp() where reachable_at is not null")


async def test_a_fact_is_pushed_signed_and_received(engine: Engine, receiver: Receiver) -> None:
    await office(engine, receiver)
    await engine.trigger("prod", "order", "O-1", "Check", {"n": 1})
    await engine.drain(timeout=30)
    [request] = receiver.requests
    webhooks.verify(request.headers, request.body, [SECRET])
    told = request.json
    assert (told["type"], told["data"]["to"], told["data"]["payload"]) == ("fact.transition", "Checked", {"n": 1})
    [delivery] = deliveries(engine.dsn, "billing")
    assert delivery.status == "delivered"
    assert told["data"]["ack"] == delivery.ack == request.key
    await engine.ack("prod", "billing", delivery.ack, "processed")
    assert deliveries(engine.dsn, "billing")[0].status == "processed"


async def test_3_5_b_a_redelivery_is_byte_identical(engine: Engine, receiver: Receiver) -> None:
    await office(engine, receiver)
    await engine.trigger("prod", "order", "O-1", "Check")
    await engine.drain(timeout=30)
    await advance(engine, seconds=241)
    await engine.drain(timeout=30)
    first, again = receiver.requests
    assert (first.body, first.key) == (again.body, again.key)
    assert (first.headers["holdfast-attempt"], again.headers["holdfast-attempt"]) == ("1", "2")


async def test_an_answer_of_the_consumer_counts(engine: Engine, receiver: Receiver) -> None:
    await office(engine, receiver, "/status/500", max_attempts=2, critical=False)
    await engine.trigger("prod", "order", "O-1", "Check")
    for _ in range(3):
        await engine.drain(timeout=30)
        await advance(engine, seconds=41)
    await engine.drain(timeout=30)
    assert len(receiver.requests) == 2
    assert deliveries(engine.dsn, "billing")[0].status == "failed"
    assert (await engine.get_consumer("prod", "billing")).alive


@pytest.mark.parametrize("code", ["502", "503", "504"])
async def test_5_7_an_outage_burns_no_attempts(engine: Engine, receiver: Receiver, code: str) -> None:
    await office(engine, receiver, f"/status/{code}")
    for n in range(3):
        await engine.trigger("prod", "order", f"O-{n}", "Check")
    await engine.drain(timeout=30)
    state = await engine.get_consumer("prod", "billing")
    assert not state.alive
    assert state.open == 3
    sent = len(receiver.requests)
    assert sent <= 3
    for _ in range(3):
        await advance(engine, minutes=5)
        await engine.drain(timeout=30)
    assert len(receiver.requests) == sent, "nothing but a probe is sent to it"
    async with engine.worker():
        recheck_now(engine)
        engine.wake()
        await until(lambda: len(receiver.requests) == sent + 1)
        await until(lambda: _attempts(engine) == [0, 0, 0])


def _attempts(engine: Engine) -> list[int]:
    with psycopg.connect(engine.dsn) as db:
        return [row[0] for row in db.execute("select attempts from holdfast.ack_consumers")]


async def test_5_7_what_cannot_be_connected_to_is_down_and_comes_back(engine: Engine, receiver: Receiver) -> None:
    await office(engine, receiver)
    with psycopg.connect(engine.dsn) as db:
        db.execute("update holdfast.consumers set target = jsonb_build_object('url', 'http://127.0.0.1:9/x')")
    engine.effect_options = EffectOptions(allow=("127.0.0.1:9", receiver.host), secrets=lambda _org, _name: SECRET)
    await engine.trigger("prod", "order", "O-1", "Check")
    await engine.drain(timeout=30)
    assert not (await engine.get_consumer("prod", "billing")).alive
    assert _attempts(engine) == [0]
    await engine.register_consumer("prod", "billing", way="push", target={"url": receiver.url("/ok")})
    recheck_now(engine)
    async with engine.worker():
        await until(lambda: deliveries(engine.dsn, "billing")[0].status == "delivered")
    assert (await engine.get_consumer("prod", "billing")).alive
    assert _attempts(engine) == [1]


async def test_a_consumer_answers_in_the_response(engine: Engine, receiver: Receiver, monkeypatch: Any) -> None:
    says: dict[str, Any] = {}
    monkeypatch.setattr(
        Receiver,
        "_ok",
        lambda _self, _request, client, _rest: reply(client, 200, says, {"content-type": "application/json"}),
    )
    await office(engine, receiver)
    says |= {"outcome": "retry", "delay": 60, "message": "later"}
    await engine.trigger("prod", "order", "O-1", "Check")
    await engine.drain(timeout=30)
    assert deliveries(engine.dsn, "billing")[0].status == "pending"
    says.clear()
    says |= {"outcome": "processed", "then": {"event": "Pack", "payload": {"box": 1}}}
    await advance(engine, seconds=61)
    await until(lambda: len(receiver.requests) == 1)
    await engine.drain(timeout=30)
    assert (await engine.machine("prod", "order", "O-1")).state == "Packed"


async def test_a_worker_without_the_secret_leaves_it_to_others(engine: Engine, receiver: Receiver) -> None:
    await office(engine, receiver)
    engine.effect_options = EffectOptions(allow=(receiver.host,), secrets=lambda _org, _name: None)
    await engine.trigger("prod", "order", "O-1", "Check")
    await engine.drain(timeout=30)
    assert receiver.requests == []
    assert _attempts(engine) == [0]
    assert (await engine.get_consumer("prod", "billing")).alive
