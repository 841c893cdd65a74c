"""Audit lines and Prometheus figures: one for everything that happens, nothing that is data in them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from holdfast import Audit, Context, DoNotRetry, Engine, Flow, Metrics, RateLimit, SyncEngine

pytestmark = pytest.mark.anyio


async def reserve(ctx: Context, data: Any) -> Any:
    return {"secret": "output"}


async def charge(ctx: Context, data: Any) -> Any:
    if ctx.attempt == 1:
        raise ValueError("try again")
    raise DoNotRetry("no money")


SAD = Flow("order").step("reserve", reserve).step("charge", charge, retries=2).build()


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


async def test_a_sink_may_be_asynchronous_and_may_fail(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    async def sink(entry: dict[str, Any]) -> None:
        lines.append(entry["what"])
        raise OSError("disk full")

    engine.use(Audit(sink))
    await engine.publish(Flow("fine").step("reserve", reserve).build())
    order = await engine.start("fine")
    await engine.drain(timeout=30)
    assert (await engine.get(order.id)).status == "completed"
    assert sorted(lines) == ["flow_completed", "flow_started", "step_called"]
    assert "could not be written" in caplog.text


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
