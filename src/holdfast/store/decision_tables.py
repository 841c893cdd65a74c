"""Decision tables as they lie in the database: written by the engine, read as the tenant, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.wire import read_int

_WORKER: Final = SQL.use_worker.one()


class TableVersion(msgspec.Struct, frozen=True):
    """One published version of a decision table. `org` is `_system` for one that every organisation has."""

    org: str
    name: str
    version: int
    hash: str
    created_by: str
    reason: str | None
    published_at: datetime


class StoredTable(NamedTuple):
    version: TableVersion
    content: dict[str, Any]


class NewTable(NamedTuple):
    """A decision table as it is published, in the order of the statement."""

    org: str
    name: str
    version: int
    content: bytes
    hash: str
    created_by: str
    reason: str | None


async def insert_table(session: Session, table: NewTable) -> bool:
    """Publish a table; False if this version is there already, whatever it says."""
    results = await session.once(_WORKER, SQL.insert_decision_table.one(*table))
    return bool(rows(results[1]))


async def read_tables(session: Session, org: str, wanted: Sequence[tuple[str, int | None]]) -> list[StoredTable | None]:
    """Read a version of each table, by default its newest; None: there is no such version."""
    queries = [SQL.read_decision_table.one(org, name, version) for name, version in wanted]
    results = await session.once(SQL.use_tenant.one(org), *queries)
    return [_stored(rows(found)) for found in results[1:]]


async def page_tables(session: Session, org: str, after: str, limit: int) -> list[TableVersion]:
    results = await session.once(SQL.use_tenant.one(org), SQL.page_decision_tables.one(org, after, limit))
    return [_version(row) for row in rows(results[1])]


def _stored(found: list[list[Any]]) -> StoredTable | None:
    return StoredTable(_version(found[0][:7]), msgspec.json.decode(found[0][7][1:])) if found else None


def _version(row: list[Any]) -> TableVersion:
    org, name, version, digest, by, reason, published = row
    return TableVersion(
        org=org.decode(),
        name=name.decode(),
        version=read_int(version),
        hash=digest.decode(),
        created_by=by.decode(),
        reason=None if reason is None else reason.decode(),
        published_at=to_datetime(read_int(published)),
    )
