"""Spans from the start of an instance to each of its steps, through the OpenTelemetry API.

The trace travels with the instance as a W3C `traceparent`, so a step is a child of the start however many processes
and days lie between them. Without an SDK there is no exporter: `tracing` is False and the hot path reads only that.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from opentelemetry import context as propagated
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.runtime.worker.context import Context
from holdfast.version import __version__

INSTANCE: Final = "holdfast.instance.id"
FLOW: Final = "holdfast.flow"
NODE: Final = "holdfast.node"
TOKEN: Final = "holdfast.token"  # noqa: S105 - the place in the flow, not a secret
ATTEMPT: Final = "holdfast.attempt"
ORG: Final = "holdfast.org"

_NOTHING: Final = nullcontext()
_W3C: Final = TraceContextTextMapPropagator()
_NOT_INSTALLED: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)


class Telemetry:
    """Source of spans. `tracing` is True only with a real tracer provider; an application that installs one late
    refreshes.
    """

    __slots__ = ("_given", "_tracer", "tracing")

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._given = provider
        self.refresh()

    def refresh(self) -> bool:
        """Look again which provider is installed; the engine does this when it opens."""
        provider = self._given or trace.get_tracer_provider()
        self._tracer = provider.get_tracer("holdfast", __version__)
        self.tracing = not isinstance(provider, _NOT_INSTALLED)
        return self.tracing

    def current_trace(self) -> str | None:
        """The `traceparent` of the caller's span, to be stored with the instance that starts now."""
        span = trace.get_current_span().get_span_context()
        if not span.is_valid:
            return None
        return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"

    def start(self, flow: str) -> AbstractContextManager[None]:
        if not self.tracing:
            return _NOTHING
        return self._span(f"holdfast.start {flow}", trace.SpanKind.PRODUCER, propagated.get_current(), {FLOW: flow})

    def step(self, context: Context, trace_parent: str | None) -> AbstractContextManager[None]:
        """Open a span around one call of a handler, as a child of the start, never of the span the runner was created
        in.
        """
        if not self.tracing:
            return _NOTHING
        parent = _W3C.extract({"traceparent": trace_parent} if trace_parent else {}, propagated.Context())
        return self._span(f"holdfast.step {context.node}", trace.SpanKind.CONSUMER, parent, _attributes(context))

    @contextmanager
    def _span(
        self, name: str, kind: trace.SpanKind, parent: propagated.Context, attributes: Mapping[str, str | int]
    ) -> Generator[None]:
        span = self._tracer.start_span(name, parent, kind, attributes)
        entered = propagated.attach(trace.set_span_in_context(span, parent))
        try:
            yield
        except BaseException as failure:
            span.record_exception(failure)
            span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(failure).__name__}: {failure}"))
            raise
        finally:
            propagated.detach(entered)
            span.end()


def _attributes(context: Context) -> Mapping[str, str | int]:
    return {
        INSTANCE: context.instance,
        FLOW: context.flow,
        NODE: context.node,
        TOKEN: context.token,
        ATTEMPT: context.attempt,
        ORG: context.org,
    }
