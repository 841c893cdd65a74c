"""Metrics of this process, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.responses import PlainTextResponse, Response

from holdfast.errors import NotFound
from holdfast.runtime.engine import Engine
from holdfast.runtime.telemetry.metrics import MetricsCollector
from holdfast.server.access.identity import current_identity
from holdfast.server.http.connections import Connections
from holdfast.server.http.gate import admit, count_address
from holdfast.server.http.problems import documented
from holdfast.server.http.queries import StrictRoute
from holdfast.server.settings import ServerSettings

router = APIRouter(tags=["metrics"], route_class=StrictRoute)


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=PlainTextResponse,
    responses=documented(401, 404, 422, 429),
    summary="Counters of this process",
)
async def metrics(request: Request) -> Response:
    settings: ServerSettings = request.app.state.settings
    if settings.metrics == "off":
        raise NotFound("Metrics are switched off.", code="METRICS_OFF", hint="Switch them on in the settings.")
    engine: Engine = request.app.state.engine
    if settings.metrics == "authenticated":
        await admit(request)
        engine = engine.for_org((await current_identity(request)).tenant)
    else:
        count_address(request, "metrics")
    await engine.look_at_backlog()
    body = generate_latest(_registry(engine, request.app.state.connections))
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})


class ConnectionsCollector:
    """Connections to this process: those open now, and those refused or ended, by reason."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        found = self._connections
        yield GaugeMetricFamily("holdfast_connections_open", "Connections open now.", value=len(found.open))
        for name, text, counts in (
            ("refused", "Connections refused: too many in all, or of one peer.", found.refused),
            (
                "timed_out",
                "Connections ended because the peer took too long, by phase.",
                found.timed_out,
            ),
        ):
            family = CounterMetricFamily(f"holdfast_connections_{name}", text, labels=("reason",))
            for reason, count in counts.items():
                family.add_metric((reason,), count)
            yield family


def _registry(engine: Engine, connections: Connections) -> CollectorRegistry:
    """The registry for one tenant: the names of its own flows, and no others."""
    registry = CollectorRegistry()
    registry.register(MetricsCollector(engine))
    registry.register(ConnectionsCollector(connections))
    return registry
