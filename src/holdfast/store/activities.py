"""Activities of machines: what applications report of their work in a state. No decision reads them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int


class Activity(msgspec.Struct, frozen=True):
    """Work of an application in a state of a machine. `entry` is the number of the entry, None where it has none."""

    id: str
    instance_id: str
    entry: int | None
    state: str | None
    name: str
    actor: str
    status: str
    data: Any
    frozen: bool
    created_at: datetime
    updated_at: datetime


class EntryKey(NamedTuple):
    """Key of the step row with which a machine entered a state, with the state and the number of the entry."""

    step: bytes
    created_at: int
    state: str
    number: int


class NewActivity(NamedTuple):
    """A status to be written under (entry, name, actor)."""

    name: str
    actor: str
    status: str
    data: bytes | None


async def read_entry(session: Session, org: str, instance: bytes, number: int | None) -> EntryKey | None:
    """Read the entry of a number, or the present one."""
    query = (
        SQL.read_present_entry.one(instance, instance[15], org)
        if number is None
        else SQL.read_entry.one(instance, instance[15], org, number)
    )
    results = await session.once(PIN, query)  # receipts are not for tenants
    found = rows(results[1])
    if not found:
        return None
    step, created, node, hop = found[0]
    return EntryKey(step, read_int(created), node.decode(), read_int(hop))


async def upsert_activity(
    session: Session, org: str, instance: bytes, id: bytes, entry: EntryKey | None, given: NewActivity
) -> Activity | None:
    """Write an activity; None when it is frozen."""
    step, created, state, number = (None, None, None, None) if entry is None else entry
    query = SQL.upsert_activity.one(
        id, instance, instance[15], org, step, created, state, given.name, given.actor, given.status, given.data, number
    )
    results = await session.once(PIN, query)
    found = rows(results[1])
    return _activity(found[0]) if found else None


async def change_activity(
    session: Session,
    org: str,
    instance: bytes,
    id: bytes,
    *,
    status: str | None = None,
    data: bytes | None = None,
    frozen: bool | None = None,
) -> bool:
    """Change an activity; False when it is not there, or frozen."""
    query = SQL.change_activity.one(instance, id, instance[15], org, status, data, frozen)
    results = await session.once(PIN, query)
    return bool(rows(results[1]))


async def list_activities(
    session: Session,
    org: str,
    instance: bytes,
    *,
    id: bytes | None = None,
    after: bytes | None = None,
    limit: int = 1000,
) -> list[Activity]:
    query = SQL.list_activities.one(instance, instance[15], org, id, after, limit)
    return [_activity(row) for row in await _read(session, org, query)]


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _activity(row: list[Any]) -> Activity:
    id, instance, entry, state, name, actor, status, data, frozen, created, updated = row
    return Activity(
        id=str(UUID(bytes=id)),
        instance_id=str(UUID(bytes=instance)),
        entry=None if entry is None else read_int(entry),
        state=None if state is None else state.decode(),
        name=name.decode(),
        actor=actor.decode(),
        status=status.decode(),
        data=None if data is None else msgspec.json.decode(data[1:]),
        frozen=frozen == b"\1",
        created_at=to_datetime(read_int(created)),
        updated_at=to_datetime(read_int(updated)),
    )
