"""Worker processes."""

from __future__ import annotations

from uuid import UUID

from holdfast.server.models.base import Model, Moment


class WorkerView(Model):
    """One process start. It is `alive` while its lease lasts; `queues` are those it serves beside the common one."""

    id: UUID
    host: str
    pid: int
    version: str
    handlers: list[str]
    operations: list[str]
    queues: list[str]
    apps: list[str]
    started_at: Moment
    lease_until: Moment
    stopped_at: Moment | None
    alive: bool


class WorkerList(Model):
    items: list[WorkerView]
