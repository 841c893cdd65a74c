"""Every failure that a commit stores is one log line, with the place and what happens next."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, Retry, Undo
from holdfast.runtime.telemetry import incidents

pytestmark = pytest.mark.anyio


async def do(ctx: Context, data: Any) -> None:
    pass


async def refuse(ctx: Context, data: Any) -> None:
    raise DoNotRetry("out of stock")


async def stumble(ctx: Context, data: Any) -> dict[str, Any]:
    if ctx.attempt < 3:
        raise RuntimeError("not yet")
    return {}


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="holdfast.incidents")
    return caplog


def lines(told: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    return [
        (r.getMessage(), getattr(r, "step", None), getattr(r, "attempt", None), getattr(r, "next", None))
        for r in told.records
        if r.name == "holdfast.incidents"
    ]


async def run(engine: Engine, flow: Any) -> str:
    for handler in (do, refuse, stumble):
        engine.register(handler.__name__, handler)
    await engine.publish(flow)
    id = (await engine.start("order", {})).id
    await engine.drain()
    return id


async def test_a_success_says_nothing(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    await run(engine, Flow("order").step("a", "do").step("b", "do").build())
    assert lines(told) == []


async def test_each_retry_is_a_line_and_the_end_tells_the_calls(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    id = await run(engine, Flow("order").step("a", "stumble", retry=Retry(attempts=3)).build())
    assert [(step, attempt) for _, step, attempt, _ in lines(told)] == [("a", 1), ("a", 2)]
    assert lines(told)[0][3].startswith("retry: attempt 2 of 3 ")
    [record] = [r for r in told.records if getattr(r, "attempt", None) == 1]
    assert (record.__dict__["flow"], record.__dict__["instance"]) == ("order", id)
    assert record.__dict__["error"] == "RuntimeError: not yet"
    [end] = [event for event in await engine.events(id) if event.type == "step_completed" and event.node == "a"]
    assert end.detail == {"calls": 3}


async def test_a_rollback_whose_compensation_fails(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    await run(engine, Flow("order").step("a", "do", undo=Undo("refuse", name="un-a")).step("b", "refuse").build())
    assert [(what.partition(" 0")[0], step, next) for what, step, _, next in lines(told)] == [
        ("Step failed", "b", "rollback"),
        ("Rollback begins, to end failed", None, "rollback"),
        ("Compensation failed", "un-a", "dead letter, the rollback goes on"),
        ("Instance failed", None, "nothing"),
        (next(w for w, *_ in lines(told) if w.startswith("Dead letter")).partition(" 0")[0], "un-a", "dead letter"),
    ]
    counted = engine.committer.incidents
    assert counted.calls_failed.of(engine.org) == {("order", "b"): 1, ("order", "un-a"): 1}
    assert counted.instances_stopped.of(engine.org) == {("order", "failed"): 1}
    assert counted.letters.of(engine.org) == {("order",): 1}
    assert counted.calls_failed.of("rival") == {("(others)", "(others)"): 2}


async def test_a_step_for_a_person_to_look_at(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    await run(engine, Flow("order", dlq=True).step("a", "refuse").build())
    assert lines(told)[0][1:] == ("a", 1, "dead letter")
    assert engine.committer.incidents.instances_stopped.of(engine.org) == {("order", "dlq"): 1}


async def test_what_handlers_raise_is_one_bounded_line(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    async def shout(ctx: Context, data: Any) -> None:
        raise DoNotRetry("\x1b[2J\u202e" + "x" * 4000 + "\n2026-01-01 error forged")

    engine.register("shout", shout)
    await run(engine, Flow("order").step("a", "shout").build())
    error = told.records[0].__dict__["error"]
    assert error.startswith("DoNotRetry: \\x1b[2J\\u202exxx")
    assert len(error) < 600
    assert "forged" not in error


async def test_a_best_effort_step_is_one_line(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    nodes: list[Any] = [
        {"id": "a", "kind": "task", "handler": "refuse", "best_effort": True}, {"id": "end", "kind": "end"}
    ]  # fmt: skip
    edges = [{"id": "out", "source": "a", "target": "end"}]
    await run(engine, {"name": "order", "entry": "a", "nodes": nodes, "edges": edges})
    assert lines(told) == [("Step failed", "a", 1, "the flow goes on: best effort")]


async def test_a_suspension_tells_who(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    await engine.publish(Flow("order").sleep("nap", 3600).build())
    id = (await engine.start("order", {})).id
    await engine.drain()
    await engine.suspend(id, reason="audit", by="ann")
    [record] = told.records
    assert (record.levelno, record.__dict__["error"], record.__dict__["instance"]) == (logging.INFO, "audit", id)
    assert engine.committer.incidents.instances_stopped.of(engine.org) == {}


async def test_a_log_that_breaks_harms_no_commit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no lines today")

    monkeypatch.setattr(incidents, "lines_of", broken)
    id = await run(engine, Flow("order").step("a", "stumble", retry=Retry(attempts=3)).build())
    assert (await engine.get(id)).status == "completed"


async def test_tracebacks_are_lines_at_debug(engine: Engine, told: pytest.LogCaptureFixture) -> None:
    told.set_level(logging.DEBUG, logger="holdfast.incidents")
    await run(engine, Flow("order").step("a", "refuse").build())
    assert any(r.levelno == logging.DEBUG and "in refuse" in r.getMessage() for r in told.records)
