"""The estimate of the database's time, and what happens to it when a test moves the clock."""

from __future__ import annotations

import time

import pytest

from holdfast import Context, Engine, Flow
from holdfast.runtime.commit.clock import DatabaseClock
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


def test_a_slow_answer_does_not_set_it_back() -> None:
    clock = DatabaseClock()
    clock.observe(HOUR, 10.0, 10.001)
    clock.observe(HOUR + 1_000_000, 11.0, 13.0)  # read at once, and two seconds on the way
    assert clock.now(13.0) >= HOUR + 2_999_000


def test_it_is_never_ahead_of_the_database() -> None:
    clock = DatabaseClock()
    for asked, slow in ((10.0, 0.4), (11.0, 0.002), (12.0, 1.5), (15.0, 0.1)):
        read = HOUR + int((asked - 10.0) * 1_000_000)  # at the very moment it was asked
        clock.observe(read, asked, asked + slow)
        assert clock.now(asked + slow) <= read + int(slow * 1_000_000) + 1


def test_it_waits_for_a_clock_that_is_a_little_behind_and_follows_one_that_was_set_back() -> None:
    clock = DatabaseClock()
    clock.observe(HOUR, 10.0, 10.001)
    said = clock.now(11.0)
    clock.observe(HOUR + 500_000, 11.0, 11.001)
    assert clock.now(11.001) == said
    clock.observe(HOUR // 2, 12.0, 12.001)
    assert clock.now(12.001) < HOUR
