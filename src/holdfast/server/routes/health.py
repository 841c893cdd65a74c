"""Liveness and readiness, for the supervisor of the process; no word about tenants."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.runtime.engine import Engine
from holdfast.server.http.problems import documented
from holdfast.server.http.queries import StrictRoute
from holdfast.server.http.replies import reply
from holdfast.store.admin.schema import current, latest

PATIENCE = 3.0
KEPT = 1.0  # seconds one look counts for everybody who asks: probes must not become load

log = logger("holdfast.server")
router = APIRouter(prefix="/health", tags=["health"], route_class=StrictRoute, responses=documented(422))


class Alive(BaseModel):
    status: Literal["ok"]


class Readiness(BaseModel):
    """The parts the server needs, each `ok` or its error; `absent` for a worker that runs elsewhere."""

    status: Literal["ok", "unready"]
    checks: dict[str, str] = Field(examples=[{"database": "ok", "schema": "ok", "worker": "absent"}])


@router.get("/live", operation_id="health_live", response_model=Alive, summary="The process answers")
async def live() -> Response:
    return reply({"status": "ok"}, headers={"Cache-Control": "no-store"})


@router.get(
    "/ready",
    operation_id="health_ready",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "Something it needs is missing"}},
    summary="The server can do its work",
)
async def ready(request: Request) -> Response:
    checks = await request.app.state.readiness.look()
    good = all(found in ("ok", "absent") for found in checks.values())
    body = {"status": "ok" if good else "unready", "checks": checks}
    return reply(body, 200 if good else 503, {"Cache-Control": "no-store"})


class ReadinessCheck:
    """One look at a time, kept for a second."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = asyncio.Lock()
        self._found: dict[str, str] = {}
        self._looked_at = float("-inf")

    async def look(self) -> dict[str, str]:
        async with self._turn:
            if time.monotonic() - self._looked_at > KEPT:
                self._found = {**await self._database(), "worker": self._worker()}
                self._looked_at = time.monotonic()
            return self._found

    async def _database(self) -> dict[str, str]:
        try:
            async with asyncio.timeout(PATIENCE):
                version = await asyncio.to_thread(current, self._engine.dsn)
        except (HoldfastError, TimeoutError, OSError) as failure:
            log.warning("The database is not ready: %s", failure)  # its address stays in the log
            return {"database": "unreachable", "schema": "unknown"}
        newest = latest()
        return {"database": "ok", "schema": "ok" if version == newest else f"is {version}, should be {newest}"}

    def _worker(self) -> str:
        worker = self._engine.running_worker
        if worker is None:
            return "absent"
        return "ok" if worker.lease.is_fresh else "lease lost"
