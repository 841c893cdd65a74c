"""Counts and durations of the tenant."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import api_router
from holdfast.server.models.base import Moment, Name, Version
from holdfast.server.models.statistics import FlowStatisticsView, StatisticsView

router = api_router("statistics")


@router.get("", operation_id="get_statistics", dependencies=[needs(Scope.READ)])
async def get_statistics(
    engine: TenantEngine,
    flow: Annotated[Name | None, Query(description="Only of this flow.")] = None,
    version: Annotated[Version | None, Query(description="Only of this version.")] = None,
    since: Annotated[Moment | None, Query(description="Only of the hours from then on.")] = None,
    until: Annotated[Moment | None, Query(description="Only of the hours before then.")] = None,
) -> StatisticsView:
    """Counts and durations per flow, version and step: of all times, or of the hours between two moments."""
    found = await engine.statistics(flow, version=version, since=since, until=until)
    return StatisticsView(items=[FlowStatisticsView.of(flow) for flow in found])
