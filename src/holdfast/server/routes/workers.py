"""Worker processes. They serve every tenant of the installation, so only operators look at them."""

from __future__ import annotations

from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import api_router
from holdfast.server.models.workers import WorkerList, WorkerView

router = api_router("workers")


@router.get("", operation_id="list_workers", dependencies=[needs(Scope.OPERATE)])
async def list_workers(engine: TenantEngine) -> WorkerList:
    """The worker processes, newest first, with what they serve and how long their lease lasts."""
    return WorkerList(items=[WorkerView.of(worker) for worker in await engine.workers()])
