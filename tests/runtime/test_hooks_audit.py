"""Audit lines and Prometheus figures: one for everything that happens, nothing that is data in them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast import Audit, Context, DoNotRetry, Engine, Flow, Metrics, RateLimit, Retry, SyncEngine

pytestmark = pytest.mark.anyio


async def reserve(ctx: Context, data: Any) -> Any:
    return {"secret": "output"}


async def charge(ctx: Context, data: Any) -> Any:
    if ctx.attempt == 1:
        raise ValueError("try again")
    raise DoNotRetry("no money")


SAD = Flow("order").step("reserve", reserve).step("charge", charge, retry=Retry(attempts=2)).build()


async def test_the_audit_tells_who_did_what_where_with_which_outcome(engine: Engine) -> None:
    lines: list[dict[str, Any]] = []
    engine.use(Audit(lines.append))
    await engine.publish(SAD)
    order = await engine.start("order", {"secret": "input"}, by="ann")
    await engine.drain(timeout=30)
    calls = [line for line in lines if line["what"] == "step_called"]
    assert [(c["step"], c["attempt"], c["outcome"]) for c in calls] == [
        ("reserve", 1, "completed"), ("charge", 1, "failed"), ("charge", 2, "failed"),
    ]  # fmt: skip
    assert calls[2]["error"] == {"code": "DoNotRetry", "message": "no money"}
    assert all(c["seconds"] >= 0 for c in calls)
    changes = [line for line in lines if line not in calls]
    assert [c["what"] for c in changes] == ["flow_started", "rollback_started", "rollback_completed", "flow_failed"]
    assert [c["status"] for c in changes][-1] == "failed"
    assert changes[-1]["error"]["code"] == "DoNotRetry"
    assert {(line["flow"], line["instance"], line["org"]) for line in lines} == {("order", order.id, engine.org)}
    assert "secret" not in json.dumps(lines, default=str)


async def test_without_a_sink_the_lines_are_json_in_a_logger(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.use(Audit())
    with caplog.at_level(logging.INFO, "holdfast.audit"):
        await engine.publish(SAD)
        await engine.start("order")
        await engine.drain(timeout=30)
    records = [r for r in caplog.records if r.name == "holdfast.audit"]
    assert records
    assert [json.loads(r.getMessage())["what"] for r in records] == [vars(r)["audit"]["what"] for r in records]


@pytest.mark.parametrize("failure", [OSError, SystemExit, asyncio.CancelledError])
async def test_a_sink_may_be_asynchronous_and_may_fail(
    engine: Engine, caplog: pytest.LogCaptureFixture, failure: type[BaseException]
) -> None:
    lines: list[str] = []

    async def sink(entry: dict[str, Any]) -> None:
        lines.append(entry["what"])
        raise failure("disk full")

    engine.use(Audit(sink))
    await engine.publish(Flow("fine").step("reserve", reserve).build())
    order = await engine.start("fine")
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).status == "completed"
    assert sorted(lines) == ["flow_completed", "flow_started", "step_called"]
    assert "could not be written" in caplog.text


# --- how a call ended -------------------------------------------------------------------------------------------------


async def panics(ctx: Context, data: Any) -> None:
    raise SystemExit("out of here")


def panics_in_a_thread(ctx: Context, data: Any) -> None:
    raise SystemExit("out of here")


async def cancels_itself(ctx: Context, data: Any) -> None:
    raise asyncio.CancelledError


def cancels_itself_in_a_thread(ctx: Context, data: Any) -> None:
    raise asyncio.CancelledError


async def hangs(ctx: Context, data: Any) -> None:
    await asyncio.Event().wait()


def hangs_in_a_thread(ctx: Context, data: Any) -> None:
    while ctx.heartbeat():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("handler", "timeout", "code"),
    [
        (panics, None, "SystemExit"),
        (panics_in_a_thread, None, "SystemExit"),
        (cancels_itself, None, "CancelledError"),
        (cancels_itself_in_a_thread, None, "CancelledError"),
        (hangs, 0.05, "STEP_TIMEOUT"),
        (hangs_in_a_thread, 0.05, "STEP_TIMEOUT"),
    ],
)
async def test_whatever_ends_a_call_is_told_as_the_failure_it_is(
    engine: Engine, handler: Any, timeout: float | None, code: str
) -> None:
    lines, registry = list[dict[str, Any]](), CollectorRegistry()
    engine.use(Metrics(registry), Audit(lines.append))
    await engine.publish(Flow("order").step("charge", handler, timeout=timeout).build())
    order = await engine.start("order")
    await engine.drain(timeout=30)
    [line] = [line for line in lines if line["what"] == "step_called"]
    [step] = [step for step in await engine.steps(order.id) if step.name == "charge"]
    assert (line["outcome"], line["error"]["code"]) == ("failed", code)
    assert line["error"] == {"code": step.error["code"], "message": step.error["message"]}
    labels = {"flow": "order", "step": "charge", "outcome": "failed"}
    assert registry.get_sample_value("holdfast_step_calls_total", labels) == 1


def nothing(ctx: Context, data: Any) -> None: ...


async def test_flows_of_other_tenants_are_counted_together(engine: Engine) -> None:
    registry = CollectorRegistry()
    engine.use(Metrics(registry, orgs=[engine.org]))
    for org in (engine.org, "acme", "globex"):
        view = engine.for_org(org)
        await view.publish(Flow(f"of-{org}").step(f"do-{org}", nothing).build())
        await view.start(f"of-{org}")
    await engine.drain(timeout=30)
    told = generate_latest(registry).decode()
    assert "acme" not in told
    assert "globex" not in told
    labels = {"flow": f"of-{engine.org}", "step": f"do-{engine.org}", "outcome": "completed"}
    others = {"flow": "(others)", "step": "(others)", "outcome": "completed"}
    assert registry.get_sample_value("holdfast_step_calls_total", labels) == 1
    assert registry.get_sample_value("holdfast_step_calls_total", others) == 2
    assert registry.get_sample_value("holdfast_flow_changes_total", {"flow": "(others)", "outcome": "completed"}) == 2


@pytest.mark.parametrize("timeout", [None, 60.0])
async def test_a_call_that_was_told_to_stop_is_stopped(engine: Engine, timeout: float | None) -> None:
    lines, registry = list[dict[str, Any]](), CollectorRegistry()
    engine.use(Metrics(registry), Audit(lines.append))
    begun = asyncio.Event()

    async def waits(ctx: Context, data: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    await engine.publish(Flow("order").step("charge", waits, timeout=timeout).build())
    async with engine.worker():
        order = await engine.start("order")
        await begun.wait()
        await engine.cancel(order.id, by="ops", reason="enough")
        await engine.wait(order.id, timeout=30)
    assert [line["outcome"] for line in lines if line["what"] == "step_called"] == ["stopped"]
    labels = {"flow": "order", "step": "charge", "outcome": "stopped"}
    assert registry.get_sample_value("holdfast_step_calls_total", labels) == 1


async def test_a_call_that_its_worker_leaves_behind_is_stopped(engine: Engine) -> None:
    lines: list[dict[str, Any]] = []
    engine.use(Audit(lines.append))
    begun = asyncio.Event()

    async def waits(ctx: Context, data: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    await engine.publish(Flow("order").step("charge", waits).build())
    async with engine.worker(grace=0.05):
        await engine.start("order")
        await begun.wait()
    assert [line["outcome"] for line in lines if line["what"] == "step_called"] == ["stopped"]


async def test_metrics_count_flows_and_calls_by_outcome(engine: Engine) -> None:
    registry = CollectorRegistry()
    engine.use(Metrics(registry), RateLimit("fine:reserve", rate=0.001, burst=1))
    await engine.publish(SAD)
    await engine.publish(Flow("fine").step("reserve", "reserve").build())
    await engine.start("order")
    await engine.start_many("fine", [{}] * 3)
    await engine.drain(timeout=30)

    def flows(flow: str, outcome: str) -> float | None:
        return registry.get_sample_value("holdfast_flow_changes_total", {"flow": flow, "outcome": outcome})

    def calls(name: str, flow: str, step: str, outcome: str) -> float | None:
        labels = {"flow": flow, "step": step, "outcome": outcome}
        return registry.get_sample_value(f"holdfast_step_{name}", labels)

    assert (flows("order", "started"), flows("order", "failed"), flows("order", "rollback_started")) == (1, 1, 1)
    assert (flows("fine", "started"), flows("fine", "completed")) == (3, 1)
    assert calls("calls_total", "order", "reserve", "completed") == 1
    assert calls("calls_total", "order", "charge", "failed") == 2
    assert calls("calls_total", "fine", "reserve", "postponed") == 2
    assert calls("call_seconds_count", "order", "charge", "failed") == 2


def test_the_engine_without_a_loop_has_hooks_too(holdfast_dsn: str) -> None:
    lines: list[dict[str, Any]] = []
    with SyncEngine(holdfast_dsn) as engine:
        engine.use(Audit(lines.append))
        engine.publish(Flow("fine").step("reserve", reserve).build())
        engine.start("fine")
        engine.drain(timeout=30)
    assert [line["what"] for line in lines if line["what"] != "step_called"] == ["flow_started", "flow_completed"]
