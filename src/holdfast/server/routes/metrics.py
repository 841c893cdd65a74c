"""What this process counts, as Prometheus reads it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import PlainTextResponse, Response

from holdfast.errors import NotFound
from holdfast.runtime.engine import Engine
from holdfast.runtime.metrics import MetricsCollector
from holdfast.server.gate import admit
from holdfast.server.problems import documented
from holdfast.server.settings import ServerSettings

router = APIRouter(tags=["metrics"])


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=PlainTextResponse,
    responses=documented(401, 404, 429),
    summary="Counters of this process",
)
async def metrics(request: Request) -> Response:
    settings: ServerSettings = request.app.state.settings
    if settings.metrics == "off":
        raise NotFound("Metrics are switched off.", code="METRICS_OFF", hint="Switch them on in the settings.")
    if settings.metrics == "authenticated":
        await admit(request)
    body = generate_latest(_registry(request))
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _registry(request: Request) -> CollectorRegistry:
    state = request.app.state
    if not hasattr(state, "metrics_registry"):
        engine: Engine = state.engine
        state.metrics_registry = CollectorRegistry()
        state.metrics_registry.register(MetricsCollector(engine))
    return state.metrics_registry
