"""Every failure of a consumer is one log line, with the place and what happens next."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orders import BLUEPRINT

sys.path.append(str(Path(__file__).parent.parent / "effects"))

from effect_servers import running_receiver

from holdfast import Consumer, ConsumerEvent, DoNotRetry, EffectOptions, Engine, Machine
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="holdfast"):
        yield caplog


def lines(told: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [
        (r.levelname, r.getMessage(), *(getattr(r, name, None) for name in ("consumer", "attempt", "error", "next")))
        for r in told.records
        if r.name == "holdfast.incidents"
    ]


async def office(engine: Engine, **wishes: Any) -> Consumer:
    await engine.import_machine(Machine.load(BLUEPRINT))
    ledger = engine.consumer("ledger", env="prod", **wishes)
    await engine.drain(timeout=30)
    return ledger


async def send(engine: Engine, *pauses: int, needs_ack: bool = True) -> str:
    told = await engine.trigger("prod", "order", "O-1", "Check", ack_required=needs_ack)
    await engine.drain(timeout=30)
    for pause in pauses:
        await advance(engine, seconds=pause)
        await engine.drain(timeout=30)
    return told.instance


FAILED = "A consumer failed on a fact"
BURIED = "Dead letter opened: a consumer has not processed a fact"


async def test_each_failure_is_a_line_and_the_last_one_a_dead_letter(
    engine: Engine, told: pytest.LogCaptureFixture
) -> None:
    ledger = await office(engine, max_attempts=2, critical=False)

    @ledger.on()
    def fail(event: ConsumerEvent) -> None:
        raise RuntimeError("out\nof order")

    instance = await send(engine, 41, 41)
    error = "RuntimeError: out"
    assert lines(told) == [
        ("WARNING", FAILED, "ledger", 1, error, "retry: attempt 2 of 2 in 40 s"),
        ("WARNING", FAILED, "ledger", 2, error, "dead letter, if it is not processed meanwhile"),
        ("ERROR", BURIED, "ledger", 2, "ACK_FAIL", "the machine goes on"),
    ]
    record = next(r for r in told.records if r.getMessage() == FAILED).__dict__
    assert (record["flow"], record["step"], record["instance"], record["tenant"]) == (
        "prod.order", "Checked", instance, engine.org,
    )  # fmt: skip
    counted = engine.committer.incidents
    assert counted.calls_failed.of(engine.org) == {("prod.order", "Checked"): 2}
    assert counted.letters.of(engine.org) == {("prod.order",): 1}
    assert not [r for r in told.records if r.exc_info], "a traceback is a line at debug"


async def test_who_gives_up_at_once_suspends_the_machine(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    ledger = await office(engine)

    @ledger.on()
    async def refuse(event: ConsumerEvent) -> None:
        raise DoNotRetry("no such account")

    await send(engine)
    found = lines(told)
    assert found[0] == ("WARNING", FAILED, "ledger", 1, "DoNotRetry: no such account", "dead letter")
    assert ("ERROR", BURIED, "ledger", 1, "no such account", "suspended, until it is resumed or requeued") in found
    assert [line[1] for line in found[1:] if line[1] != BURIED] == ["Instance stands still: suspended"]


async def test_a_fact_that_is_sent_once_is_not_sent_again(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    ledger = await office(engine)

    @ledger.on()
    def fail(event: ConsumerEvent) -> None:
        raise RuntimeError("no")

    await send(engine, needs_ack=False)
    assert [line[-1] for line in lines(told)] == ["nothing: it is sent once"]


async def test_a_traceback_is_a_line_at_debug(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    told.set_level(logging.DEBUG, logger="holdfast")
    ledger = await office(engine)

    @ledger.on()
    def fail(event: ConsumerEvent) -> None:
        raise RuntimeError("no")

    await send(engine)
    [line] = [text for _, text, *_ in lines(told) if text.startswith("Traceback of the failed consumer")]
    assert "in fail" in line


async def test_a_push_that_is_answered_badly_is_a_line(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    with running_receiver() as receiver:
        engine.effect_options = EffectOptions(allow=(receiver.host,), secrets=lambda _org, _name: SECRET)
        await engine.import_machine(Machine.load(BLUEPRINT))
        url = receiver.url("/status/500")
        await engine.register_consumer("prod", "billing", way="push", target={"url": url}, max_attempts=5)
        await engine.drain(timeout=30)
        await send(engine)
    [(level, text, consumer, attempt, error, next)] = lines(told)
    assert (level, text, consumer, attempt, next) == (
        "WARNING", FAILED, "billing", 1, "retry: attempt 2 of 5 in 40 s",
    )  # fmt: skip
    assert "500" in error
