"""Human tasks in the database: opened and ended by commits, changed by people, listed for their inboxes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from psycopg.pq.abc import PGresult

from holdfast.core.model.decision import TaskFacts
from holdfast.core.model.signals import Decided
from holdfast.core.model.timestamps import to_datetime
from holdfast.core.people.ownership import Change
from holdfast.store.commit.needs import SignalContent
from holdfast.store.commit.rows import NEVER
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

MOST_ABOUT: Final = 100  # tasks of an instance that are looked at to see whom it concerns
MOST_URGENT: Final = (-1, 0, bytes(16))

Position = tuple[int, int, bytes]  # where a task stands in an inbox: rank, due time, id


class Task(msgspec.Struct, frozen=True):
    """Work for a person, and what became of it."""

    id: str
    instance_id: str
    flow: str
    node: str
    token: str
    status: str
    roles: list[str]
    assignee: str | None
    priority: int
    due_at: datetime | None
    form: Any
    payload: Any
    decision: str | None
    comment: str | None
    data: Any
    decided_by: str | None
    reason: str | None
    version: int
    org: str
    step_id: str
    created_at: datetime
    updated_at: datetime
    closed_at: datetime | None


class TaskEvent(msgspec.Struct, frozen=True):
    """One line of a task's history."""

    ordinal: int
    type: str
    actor: str | None
    assignee: str | None
    reason: str | None
    detail: Any
    created_at: datetime


# --- in a commit --------------------------------------------------------------------------------------------------


async def lock_tasks(session: Session, ids: Sequence[bytes]) -> dict[bytes, TaskFacts | None]:
    """None: there is no such task, which the decision itself finds out."""
    [result] = await session.run([tasks_to_lock(ids)])
    return locked_tasks(ids, result)


def tasks_to_lock(ids: Sequence[bytes]) -> Query:
    return SQL.lock_tasks.rows([(id, id[15]) for id in ids])


def locked_tasks(ids: Sequence[bytes], result: PGresult) -> dict[bytes, TaskFacts | None]:
    found = {id: TaskFacts(_text(assignee), tuple(_json(roles))) for id, assignee, roles in rows(result)}
    return {id: found.get(id) for id in ids}


def decision_content(instance: bytes, key: str, signal: Decided) -> SignalContent:
    """Content by which a repeated decision is recognised; the function holdfast.decide computes it in the same way."""
    data = msgspec.Raw(b"null" if signal.raw is None else signal.raw)
    content = msgspec.json.encode({"data": data, "comment": signal.comment})
    return SignalContent(instance, key, signal.decision, content, str(UUID(bytes=signal.task)))


# --- by people ----------------------------------------------------------------------------------------------------


async def change_task(session: Session, org: str, id: bytes, version: int, change: Change, by: str) -> bool:
    """Change a task if it is still at this version; False when it has changed since."""
    query = SQL.change_task.one(
        id, id[15], org, version, change.status, change.assignee, change.event, by, change.reason
    )
    results = await session.once(SQL.use_worker.one(), query)
    return results[1].ntuples == 1


async def read_task(session: Session, org: str, id: bytes) -> Task | None:
    found = await _read(session, org, SQL.read_task.one(id, id[15], org))
    return _task(found[0]) if found else None


async def read_tasks(session: Session, org: str, ids: Sequence[bytes]) -> list[Task]:
    if not ids:
        return []
    return [
        _task(row) for row in await _read(session, org, SQL.list_tasks_by_id.rows([(id, id[15]) for id in ids], org))
    ]


async def list_tasks_about(session: Session, org: str, instances: Sequence[bytes], person: str) -> list[Task]:
    """List the open tasks of each instance, and those this person worked on there."""
    query = SQL.list_tasks_about.rows([(id,) for id in instances], org, person, MOST_ABOUT)
    return await _list(session, org, query)


async def list_task_events(
    session: Session, org: str, id: bytes, after: int = -1, limit: int | None = None
) -> list[TaskEvent]:
    query = SQL.list_task_events.one(id, id[15], org, after, limit)
    return [_event(row) for row in await _read(session, org, query)]


async def list_tasks_of_instance(
    session: Session,
    org: str,
    instance: bytes,
    *,
    status: str | None,
    role: str | None,
    assignee: str | None,
    after: bytes | None,
    limit: int,
) -> list[Task]:
    query = SQL.list_tasks_of_instance.one(instance, org, status, after, limit, role, assignee)
    return await _list(session, org, query)


async def list_finished_tasks(session: Session, org: str, status: str, after: bytes | None, limit: int) -> list[Task]:
    return await _list(session, org, SQL.list_finished_tasks.one(org, status, after, limit))


async def list_inbox(
    session: Session,
    org: str,
    *,
    role: str | None,
    assignee: str | None,
    status: str | None,
    after: Position,
    limit: int,
) -> list[Task]:
    """Open tasks, most urgent first."""
    common = (org, status, *after, limit)
    if role is not None:
        query = SQL.list_tasks_of_role.one(*common, role, assignee)
    elif assignee is not None:
        query = SQL.list_tasks_of_assignee.one(*common, assignee)
    else:
        query = SQL.list_open_tasks.one(*common)
    return await _list(session, org, query)


class FreeTask(NamedTuple):
    """A task without assignee or role, with the facts that decide who may act on it."""

    task: Task
    definition: bytes
    starter: str | None


async def list_free_tasks(session: Session, org: str, after: Position, limit: int) -> list[FreeTask]:
    """Open tasks that name neither a person nor a role, most urgent first."""
    found = await _read(session, org, SQL.list_free_tasks.one(org, *after, limit))
    return [FreeTask(_task(columns), definition, _text(starter)) for *columns, definition, starter in found]


async def _list(session: Session, org: str, query: Query) -> list[Task]:
    return [_task(row) for row in await _read(session, org, query)]


async def _read(session: Session, org: str, query: Query) -> Sequence[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _task(row: list[Any]) -> Task:
    (id, org, instance, step, flow, node, token, status, roles, assignee, rank, due, form, payload, decision, comment,
     data, decided_by, reason, version, created, updated, closed) = row  # fmt: skip
    return Task(
        id=str(UUID(bytes=id)),
        instance_id=str(UUID(bytes=instance)),
        flow=flow.decode(),
        node=node.decode(),
        token=token.decode(),
        status=status.decode(),
        roles=_json(roles),
        assignee=_text(assignee),
        priority=100 - read_int(rank),
        due_at=None if read_int(due) == NEVER else to_datetime(read_int(due)),
        form=_json(form),
        payload=_json(payload),
        decision=_text(decision),
        comment=_text(comment),
        data=_json(data),
        decided_by=_text(decided_by),
        reason=_text(reason),
        version=read_int(version),
        org=org.decode(),
        step_id=str(UUID(bytes=step)),
        created_at=to_datetime(read_int(created)),
        updated_at=to_datetime(read_int(updated)),
        closed_at=None if closed is None else to_datetime(read_int(closed)),
    )


def _event(row: list[Any]) -> TaskEvent:
    ordinal, type, actor, assignee, reason, detail, created = row
    return TaskEvent(
        read_int(ordinal), type.decode(), _text(actor), _text(assignee), _text(reason), _json(detail),
        to_datetime(read_int(created)),
    )  # fmt: skip


def _json(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value[1:])


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
