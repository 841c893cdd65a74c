"""The worker processes, as operators look at them. They serve all organisations, so no tenant sees this table."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.core.moments import to_datetime
from holdfast.core.program import CALL_QUEUE
from holdfast.store.queue import UNRUN_QUEUES
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL
from holdfast.store.wire import read_int


class WorkerProcess(msgspec.Struct, frozen=True):
    """One process start. `queues` are those it serves beside the one every worker does."""

    id: str
    host: str
    pid: int
    version: str
    handlers: list[str]
    operations: list[str]
    queues: list[str]
    started_at: datetime
    lease_until: datetime
    stopped_at: datetime | None
    alive: bool


async def list_workers(session: Session, limit: int) -> list[WorkerProcess]:
    """Newest first; those that ended stay for about a day."""
    results = await session.once(SQL.use_worker.one(), SQL.list_workers.one(limit))
    found: list[WorkerProcess] = []
    for id, host, pid, version, served, started, lease, stopped, alive in rows(results[1]):
        handlers, operations, queues = _apart(msgspec.json.decode(served[1:], type=list[str]))
        found.append(
            WorkerProcess(
                str(UUID(bytes=id)), host.decode(), read_int(pid), version.decode(), handlers, operations, queues,
                to_datetime(read_int(started)), to_datetime(read_int(lease)),
                None if stopped is None else to_datetime(read_int(stopped)), alive == b"\1",
            )
        )  # fmt: skip
    return found


def _apart(served: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Handlers, operations, queues. What is offered in a queue of its own is always offered without one, too."""
    calls = [name.removeprefix(CALL_QUEUE) for name in served if name.startswith(CALL_QUEUE)]
    works = [name for name in served if not name.startswith(CALL_QUEUE) and name not in UNRUN_QUEUES]
    queues: set[str] = set()
    plain: list[list[str]] = []
    for names in (works, calls):
        known = set(names)
        queued = {name for name in names if name.partition(":")[2] in known}
        queues |= {name.partition(":")[0] for name in queued}
        plain.append(sorted(known - queued))
    return plain[0], plain[1], sorted(queues)
