"""Failed deliveries are incidents: one log line and one count each, with the place and what happens next."""

from __future__ import annotations

import logging
import signal
from typing import Any

import pytest
from effect_flows import flow, options
from effect_process import effects_process
from effect_servers import Receiver

from holdfast import Engine
from holdfast.graph.model import Retry
from running import Evidence, until

pytestmark = pytest.mark.anyio

FIELDS = ("flow", "step", "tenant", "attempt", "error", "next")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="holdfast")
    return caplog


def lines(told: pytest.LogCaptureFixture, name: str = "holdfast.incidents") -> list[logging.LogRecord]:
    return [record for record in told.records if record.name == name]


def facts(record: logging.LogRecord) -> tuple[Any, ...]:
    return tuple(record.__dict__.get(field) for field in FIELDS)


def refusing(engine: Engine) -> None:
    @engine.effect("tell")
    def tell(ctx: Any, data: Any) -> None:
        raise ValueError(f"no {ctx.attempt}")


async def run(engine: Engine, graph: Any) -> str:
    await engine.publish(graph)
    id = (await engine.start(graph.name, {})).id
    await engine.drain(timeout=30)
    return id


async def test_each_failed_delivery_is_a_line_and_the_last_one_a_dead_letter(
    engine: Engine, told: pytest.LogCaptureFixture
) -> None:
    refusing(engine)
    id = await run(engine, flow("tell", retry=Retry(calls=2)))
    [first, last] = lines(told)
    assert (first.levelno, first.getMessage()) == (logging.WARNING, "Delivery failed, retry follows")
    assert facts(first) == ("told", "tell", engine.org, 1, "ValueError: no 1", "retry: attempt 2 of 2 at once")
    assert (last.levelno, last.getMessage()) == (logging.ERROR, "Delivery failed, dead letter opened")
    assert facts(last) == ("told", "tell", engine.org, 2, "ValueError: no 2", "dead letter")
    [effect] = await engine.effects(id)
    assert {(r.__dict__["instance"], r.__dict__["effect"]) for r in (first, last)} == {(id, effect.id)}
    assert lines(told, "holdfast.effects") == [], "one failure, one line"


@pytest.mark.parametrize("awaits", [False, True])
async def test_they_are_counted_by_flow_and_step(engine: Engine, awaits: bool) -> None:
    refusing(engine)
    id = await run(engine, flow("tell", awaits=awaits, retry=Retry(calls=3)))
    assert len(await engine.dead_letters(id)) == 1
    counted = engine.stats()
    assert counted.calls_failed == {("told", "tell"): 3}
    assert counted.dead_letters == {("told",): 1}


async def test_a_delivery_that_succeeds_says_nothing(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    @engine.effect("tell")
    def tell(ctx: Any, data: Any) -> None:
        pass

    await run(engine, flow("tell"))
    assert lines(told) == []
    assert engine.stats().calls_failed == {}


async def test_a_log_that_breaks_stores_no_outcome_twice(
    engine: Engine, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no lines today")

    refusing(engine)
    monkeypatch.setattr(engine.committer.incidents, "delivery_failed", broken)
    id = await run(engine, flow("tell", retry=Retry(calls=2)))
    assert [event.type for event in await engine.events(id) if event.type.startswith("effect_")] == [
        "effect_emitted", "effect_failed", "effect_dead"
    ]  # fmt: skip
    assert lines(told) == []


async def test_tracebacks_are_lines_at_debug(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    told.set_level(logging.DEBUG, logger="holdfast.incidents")
    refusing(engine)
    await run(engine, flow("tell", retry=Retry(calls=1)))
    assert [r.levelno for r in lines(told)] == [logging.ERROR, logging.DEBUG]
    assert "in tell" in lines(told)[1].getMessage()


async def test_a_delivery_of_a_lost_worker_is_a_line(
    engine: Engine, receiver: Receiver, evidence: Evidence, told: pytest.LogCaptureFixture
) -> None:
    await engine.publish(flow(config={"url": receiver.url("/never")}, retry=Retry(calls=1)))
    id = (await engine.start("told", {})).id
    with effects_process(engine.dsn, receiver.host) as victim:
        await until(lambda: len(receiver.requests) == 1)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    engine.effect_options = options(receiver)
    async with engine.worker(lease=1.0):
        await until(lambda: evidence.ask("select count(*) from holdfast.dead_letters") == 1)
        await until(lambda: engine.stats().dead_letters)
    [over, dead] = lines(told)
    assert over.getMessage() == "Delivery taken over: its worker's lease is over, or its attempt had no time left"
    assert facts(over) == ("told", "tell", engine.org, 1, "LEASE_LOST", "back in the outbox")
    assert (dead.__dict__["instance"], dead.__dict__["next"]) == (id, "dead letter")


async def test_an_outcome_that_came_too_late_is_a_line(
    engine: Engine, evidence: Evidence, told: pytest.LogCaptureFixture
) -> None:
    """The effect passes to others while it is delivered here."""

    @engine.effect("tell")
    async def tell(ctx: Any, data: Any) -> None:
        if ctx.attempt == 1:
            evidence.ask("update holdfast.effects set fence = fence + 1, status = 'failed', worker = null returning 1")

    await engine.publish(flow("tell"))
    id = (await engine.start("told", {})).id
    await engine.drain(timeout=30)
    [late] = lines(told)
    assert (late.levelno, late.getMessage()) == (
        logging.WARNING, "Outcome of a delivery came too late: it is stored, or leased to another worker"
    )  # fmt: skip
    assert (late.__dict__["instance"], late.__dict__["next"]) == (id, "the outcome is dropped")
