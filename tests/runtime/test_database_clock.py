"""The estimate of the database's time, and what happens to it when a test moves the clock."""

from __future__ import annotations

import time

import pytest

from holdfast import Context, Engine, Flow
from holdfast.runtime.clock import DatabaseClock
from holdfast.testing import advance

HOUR = 3_600_000_000


def test_it_goes_on_from_the_last_answer() -> None:
    clock = DatabaseClock()
    assert not clock.is_trusted
    clock.observe(HOUR, time.monotonic())
    assert clock.is_trusted
    assert HOUR <= clock.now() < HOUR + 60_000_000


def test_an_answer_asked_for_before_the_clock_was_moved_says_nothing() -> None:
    clock = DatabaseClock()
    asked_at = time.monotonic()
    clock.distrust()
    clock.observe(HOUR, asked_at)
    assert not clock.is_trusted
    clock.observe(2 * HOUR, time.monotonic())
    assert clock.is_trusted
    assert clock.now() >= 2 * HOUR


@pytest.mark.anyio
async def test_what_is_started_after_a_move_is_started_then(engine: Engine) -> None:
    async def do(ctx: Context, data: object) -> None:
        pass

    engine.register("do", do)
    await engine.publish(Flow("f").step("a", "do").build())
    async with engine.worker():
        before = await engine.wait((await engine.start("f", {})).id, timeout=30)
        assert engine.committer.clock.is_trusted
        moved = await advance(engine, hours=1)
        assert not engine.committer.clock.is_trusted
        after = await engine.wait((await engine.start("f", {})).id, timeout=30)
    assert before.created_at is not None, "a wait that reads nothing knows it, too"
    assert after.created_at is not None
    assert before.created_at < moved <= after.created_at
