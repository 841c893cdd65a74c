"""The trace on its whole way: the caller's span, the stored instance, the steps, the handlers' own spans."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.doors.saga import Flow
from holdfast.runtime.engine import Engine
from holdfast.runtime.telemetry.spans import Telemetry
from holdfast.runtime.worker.context import Context

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_borrowed", [False, True], ids=["own transaction", "the caller's"])
async def test_steps_are_children_of_the_callers_trace(engine: Engine, holdfast_dsn: str, is_borrowed: bool) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop")
    engine.telemetry = Telemetry(provider)

    @engine.handler("awaited")
    async def awaited(ctx: Context, data: Any) -> Any:
        with tracer.start_as_current_span(f"inside {ctx.step}"):
            return data

    await engine.publish(Flow("order").step("first", "awaited").step("second", "awaited").build())
    with tracer.start_as_current_span("checkout") as checkout:
        if is_borrowed:
            async with await psycopg.AsyncConnection.connect(holdfast_dsn) as conn:
                await engine.start("order", {}, conn=conn)
        else:
            await engine.start("order", {})
    await engine.drain(timeout=30)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {span.context.trace_id for span in spans.values()} == {checkout.get_span_context().trace_id}
    for name in ("first", "second"):
        inner = spans[f"inside {name}"].parent
        assert inner is not None
        assert inner.span_id == spans[f"holdfast.step {name}"].context.span_id
