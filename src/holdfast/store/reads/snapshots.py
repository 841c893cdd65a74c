"""Snapshots as they are stored, read without a lock: for a look at many instances before any of them is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.model.state import Instance
from holdfast.errors import HoldfastError
from holdfast.store.commit.locks import load_instance
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN

Snapshots = dict[bytes, Instance | HoldfastError]  # by id; what cannot be read comes with the reason


async def list_unfinished(
    session: Session, org: str, flow: str, version: int | None, other: int | None, after: bytes | None, limit: int
) -> Snapshots:
    """List unfinished instances by id: those on `version`, without those on `other`."""
    return await _read(session, SQL.list_unfinished.one(org, flow, version, other, after, limit))


async def read_snapshots(session: Session, org: str, ids: Sequence[bytes]) -> Snapshots:
    found = await _read(session, SQL.read_snapshots.rows([(id, id[15]) for id in ids], org)) if ids else {}
    return {id: found[id] for id in ids if id in found}


async def read_migrations(session: Session, ids: Sequence[bytes]) -> dict[bytes, bytes]:
    """Read the detail of each instance's last migration."""
    if not ids:
        return {}
    results = await session.once(PIN, SQL.read_migrations.rows([(id, id[15]) for id in ids]))
    return {id: detail[1:] for id, detail in rows(results[1])}


async def _read(session: Session, query: Query) -> Snapshots:
    results = await session.once(PIN, query)
    return {row[0]: _loaded(row) for row in rows(results[1])}


def _loaded(row: Sequence[Any]) -> Instance | HoldfastError:
    try:
        return load_instance(row)
    except HoldfastError as unreadable:
        return unreadable
