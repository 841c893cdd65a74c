"""Spans from start to step. The SDK is only here: the product knows the API."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import cast
from uuid import UUID

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as propagated
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.core.model.program import link
from holdfast.doors.saga import Flow
from holdfast.doors.saga.lowering import lower
from holdfast.graph.compile import compile_graph
from holdfast.runtime.telemetry.spans import Telemetry
from holdfast.runtime.worker.background import Reader
from holdfast.runtime.worker.context import Context, Job

INSTANCE = UUID("01920000-0000-7000-8000-000000000007")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def telemetry(provider: TracerProvider) -> Telemetry:
    return Telemetry(provider)


UNREAD = cast("Reader", None)  # nothing here asks a call about its instance
PROGRAM = link(compile_graph(lower(Flow("order").step("reserve", "work").step("ship", "work").build())), b"")


def call_of(node: str = "reserve", attempt: int = 1) -> Context:
    job = Job(INSTANCE.bytes, "acme", "order", "0", 3, INSTANCE.bytes, 1, attempt, PROGRAM.places[node], b"{}")
    return Context(job, is_lost=lambda: False, reader=UNREAD)


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    return span


def test_the_api_alone_is_not_tracing() -> None:
    telemetry = Telemetry()
    assert not telemetry.tracing
    with telemetry.start("order"), telemetry.step(call_of(), PARENT):
        assert telemetry.current_trace() is None


def test_a_no_op_provider_is_not_tracing() -> None:
    assert not Telemetry(trace.NoOpTracerProvider()).tracing


def test_an_sdk_installed_late_is_found_by_refresh() -> None:
    """In a process of its own: the global provider can be set only once."""
    script = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from holdfast.runtime.telemetry.spans import Telemetry\n"
        "telemetry = Telemetry()\n"
        "before = telemetry.tracing\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "print(before, telemetry.tracing, telemetry.refresh(), telemetry.tracing)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False", "True", "True"]


def test_a_step_is_a_consumer_with_the_documented_attributes(
    telemetry: Telemetry, exporter: InMemorySpanExporter
) -> None:
    with telemetry.step(call_of(attempt=2), None):
        pass
    span = only(exporter)
    assert span.name == "holdfast.step reserve"
    assert span.kind is trace.SpanKind.CONSUMER
    assert dict(span.attributes or {}) == {
        "holdfast.instance.id": str(INSTANCE),
        "holdfast.flow": "order",
        "holdfast.node": "reserve",
        "holdfast.token": "0@3",
        "holdfast.attempt": 2,
        "holdfast.org": "acme",
    }
    assert span.status.is_unset
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "holdfast"


def test_the_trace_of_the_start_reaches_the_step(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with telemetry.start("order"):
        carried = telemetry.current_trace()
    with telemetry.step(call_of(), carried):
        pass
    started, step = exporter.get_finished_spans()
    assert started.name == "holdfast.start order"
    assert started.kind is trace.SpanKind.PRODUCER
    assert step.parent is not None
    assert step.parent.span_id == started.context.span_id
    assert step.parent.is_remote
    assert step.context.trace_id == started.context.trace_id


def test_a_start_is_a_child_of_the_callers_span(
    telemetry: Telemetry, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with provider.get_tracer("shop").start_as_current_span("checkout") as checkout, telemetry.start("order"):
        pass
    started = exporter.get_finished_spans()[0]
    assert started.parent is not None
    assert started.parent.span_id == checkout.get_span_context().span_id


def test_the_traceparent_is_written_as_w3c_asks(telemetry: Telemetry, provider: TracerProvider) -> None:
    assert telemetry.current_trace() is None
    with provider.get_tracer("shop").start_as_current_span("checkout"):
        headers: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(headers)
        assert telemetry.current_trace() == headers["traceparent"]
    assert telemetry.current_trace() is None


def test_a_parent_that_was_not_sampled_is_not_recorded(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with telemetry.step(call_of(), PARENT[:-2] + "00"):
        assert telemetry.current_trace() is not None
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("broken", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 5000])
def test_a_broken_traceparent_begins_a_new_trace(
    telemetry: Telemetry, exporter: InMemorySpanExporter, broken: str
) -> None:
    with telemetry.step(call_of(), broken):
        pass
    assert only(exporter).parent is None


def test_the_runners_own_span_and_baggage_stay_outside(
    telemetry: Telemetry, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    """A runner's task inherits the context of whoever woke it, which has nothing to do with its next step."""
    entered = propagated.attach(baggage.set_baggage("customer", "somebody else"))
    with provider.get_tracer("shop").start_as_current_span("unrelated"), telemetry.step(call_of(), None):
        assert baggage.get_all() == {}
    propagated.detach(entered)
    assert exporter.get_finished_spans()[0].parent is None


def test_a_failing_handler_is_recorded_and_raised(telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match="no funds"), telemetry.step(call_of(), PARENT):
        raise ValueError("no funds")
    span = only(exporter)
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "ValueError: no funds"
    assert [(event.name, (event.attributes or {})["exception.type"]) for event in span.events] == [
        ("exception", "ValueError")
    ]
    assert telemetry.current_trace() is None


def test_handlers_running_side_by_side_keep_their_own_spans(
    telemetry: Telemetry, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async def handle(node: str, all_inside: asyncio.Barrier) -> None:
        with telemetry.step(call_of(node), PARENT):
            await all_inside.wait()
            with provider.get_tracer("shop").start_as_current_span(f"inside {node}"):
                await all_inside.wait()

    async def scenario() -> None:
        all_inside = asyncio.Barrier(2)
        await asyncio.gather(*(handle(node, all_inside) for node in ("reserve", "ship")))

    asyncio.run(scenario())
    spans = {span.name: span for span in exporter.get_finished_spans()}
    for node in ("reserve", "ship"):
        inner = spans[f"inside {node}"]
        assert inner.parent is not None
        assert inner.parent.span_id == spans[f"holdfast.step {node}"].context.span_id
