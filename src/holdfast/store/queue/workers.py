"""The worker processes, as operators look at them. They serve all organisations, so no tenant sees this table."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.core.model.program import CALL_QUEUE
from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.wire import read_int
from holdfast.store.queue.work import UNRUN_QUEUES


class WorkerProcess(msgspec.Struct, frozen=True):
    """One process start. `queues` are those it serves beside the one every worker does; `apps` are its handlers'."""

    id: str
    host: str
    pid: int
    version: str
    handlers: list[str]
    operations: list[str]
    queues: list[str]
    apps: list[str]
    started_at: datetime
    lease_until: datetime
    stopped_at: datetime | None
    alive: bool


async def list_workers(session: Session, limit: int) -> list[WorkerProcess]:
    """Newest first; those that ended stay for about a day."""
    results = await session.once(SQL.use_worker.one(), SQL.list_workers.one(limit))
    found: list[WorkerProcess] = []
    for id, host, pid, version, served, started, lease, stopped, alive in rows(results[1]):
        handlers, operations, queues, apps = _apart(msgspec.json.decode(served[1:], type=list[str]))
        found.append(
            WorkerProcess(
                id=str(UUID(bytes=id)),
                host=host.decode(),
                pid=read_int(pid),
                version=version.decode(),
                handlers=handlers,
                operations=operations,
                queues=queues,
                apps=apps,
                started_at=to_datetime(read_int(started)),
                lease_until=to_datetime(read_int(lease)),
                stopped_at=None if stopped is None else to_datetime(read_int(stopped)),
                alive=alive == b"\1",
            )
        )
    return found


def _apart(served: list[str]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Split served names into handlers, operations, queues and applications.

    A name offered in a queue of its own, or as an application's, is always offered without, too.
    """
    calls = [name.removeprefix(CALL_QUEUE) for name in served if name.startswith(CALL_QUEUE)]
    works = [name for name in served if not name.startswith(CALL_QUEUE) and name not in UNRUN_QUEUES]
    queues, apps = set[str](), set[str]()
    plain: list[list[str]] = []
    for names in (works, calls):
        known = set(names)
        queued = {name for name in names if name.partition(":")[2] in known}
        queues |= {name.partition(":")[0] for name in queued}
        owned = {name for name in known - queued if name.partition("/")[2] in known}
        apps |= {name.partition("/")[0] for name in owned}
        plain.append(sorted(known - queued - owned))
    return plain[0], plain[1], sorted(queues), sorted(apps)
