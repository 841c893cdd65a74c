"""API keys in the database: found by their public half, listed for their organisation, ended, never removed.

Every write may be sent twice: a key is stored under a prefix that was drawn for it, and a repeat reads it back.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.store.commit.locks import CLOCK
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

NEVER: Final = 2**63 - 1  # PostgreSQL's infinity: before the first page


class ApiKey(msgspec.Struct, frozen=True):
    """One key as its organisation sees it, without the secret: only the holder has that."""

    prefix: str
    org: str
    name: str
    subject: str
    partition: str
    roles: tuple[str, ...]
    capabilities: tuple[str, ...]
    scopes: tuple[str, ...]
    successor: str | None
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class StoredKey(msgspec.Struct, frozen=True):
    """A key with what its secret is compared to; `is_good`: neither revoked nor expired."""

    key: ApiKey
    digest: bytes
    is_good: bool


class NewKey(msgspec.Struct, frozen=True):
    """A key to create: its subject and its capabilities."""

    org: str
    name: str
    subject: str
    partition: str = ""
    roles: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    created_by: str | None = None
    lifetime: int | None = None  # microseconds


async def insert_api_key(session: Session, prefix: str, digest: bytes, new: NewKey) -> StoredKey | None:
    lists = [msgspec.json.encode(texts) for texts in (new.roles, new.capabilities, new.scopes)]
    insert = SQL.insert_api_key.one(
        prefix, new.org, new.name, new.subject, new.partition, digest, *lists, new.created_by, new.lifetime
    )
    return await _changed(session, insert, prefix)


async def rotate_api_key(
    session: Session, org: str, former: str, *, prefix: str, digest: bytes, overlap: int, lifetime: int | None,
    by: str | None,
) -> StoredKey | None:  # fmt: skip
    """The new key; None when the former is not there, over, or has a successor already."""
    return await _changed(session, SQL.rotate_api_key.one(former, org, overlap, prefix, digest, by, lifetime), prefix)


async def revoke_api_key(session: Session, org: str, prefix: str, by: str | None) -> bool:
    results = await session.once(PIN, SQL.revoke_api_key.one(prefix, org, by))
    return bool(rows(results[1]))


async def find_api_key(session: Session, prefix: str) -> StoredKey | None:
    """Find a key of any organisation: the caller needs the organisation first of all."""
    results = await session.once(PIN, SQL.read_api_key.one(prefix))
    return _stored(rows(results[1]))


async def note_api_key_use(session: Session, prefix: str) -> None:
    await session.once(PIN, SQL.note_api_key_use.one(prefix))


async def list_api_keys(session: Session, org: str, *, after: str | None, ended: bool, limit: int) -> list[ApiKey]:
    """List keys, newest first, after the key with that prefix; a prefix of another organisation gives the first
    page.
    """
    _, clock, last = await session.once(PIN, CLOCK, SQL.read_api_key.one(after))
    position = next(((row[10], row[0].decode()) for row in rows(last) if row[1].decode() == org), (None, ""))
    created_at = NEVER if position[0] is None else read_int(position[0])
    now = read_int(clock.get_value(0, 0) or b"")
    query = SQL.list_api_keys.one(org, created_at, position[1], ended, now, limit)
    return [_key(row) for row in rows((await session.once(SQL.use_tenant.one(org), query))[1])]


async def _changed(session: Session, change: Query, prefix: str) -> StoredKey | None:
    results = await session.once(PIN, change, SQL.read_api_key.one(prefix))
    return _stored(rows(results[2]))


def _stored(found: list[list[Any]]) -> StoredKey | None:
    for row in found:
        return StoredKey(_key(row[:15]), row[15], row[16] == b"\1")
    return None


def _key(row: list[Any]) -> ApiKey:
    prefix, org, name, subject, partition = (text.decode() for text in row[:5])
    roles, capabilities, scopes = (tuple(msgspec.json.decode(words[1:])) for words in row[5:8])
    return ApiKey(
        prefix=prefix,
        org=org,
        name=name,
        subject=subject,
        partition=partition,
        roles=roles,
        capabilities=capabilities,
        scopes=scopes,
        successor=_text(row[8]),
        created_by=_text(row[9]),
        created_at=to_datetime(read_int(row[10])),
        expires_at=_moment(row[11]),
        last_used_at=_moment(row[12]),
        revoked_at=_moment(row[13]),
        revoked_by=_text(row[14]),
    )


def _moment(value: bytes | None) -> datetime | None:
    return None if value is None else to_datetime(read_int(value))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
