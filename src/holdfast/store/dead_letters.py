"""What was given up on, with its envelope and the reason: read it, put it back, or let it go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.moments import to_datetime
from holdfast.store.pins import PIN
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int


class DeadLetter(msgspec.Struct, frozen=True):
    """A signal or a step nothing could be done with. `worker` is the process that gave up; `error` is what it met."""

    id: str
    instance_id: str
    source: str  # signal | work | effect | …
    reason: str
    envelope: Any
    error: Any
    attempts: int
    worker: str | None
    created_at: datetime
    resolved_at: datetime | None = None
    resolution: str | None = None  # replayed | discarded
    resolved_by: str | None = None
    resolved_why: str | None = None


class Wanted(msgspec.Struct, frozen=True):
    """Which open letters are meant; what is None does not matter."""

    instance: bytes | None = None
    reason: str | None = None
    source: str | None = None


async def list_dead_letters(
    session: Session, org: str, wanted: Wanted, after: bytes | None, limit: int
) -> list[DeadLetter]:
    """Open ones, newest first."""
    arguments = org, wanted.reason, wanted.source, after, limit
    if wanted.instance is None:
        query = SQL.list_dead_letters.one(*arguments)
    else:
        query = SQL.list_dead_letters_of_instance.one(*arguments, wanted.instance)
    return [_letter(row) for row in await _read(session, org, query)]


async def read_dead_letter(session: Session, org: str, id: bytes) -> DeadLetter | None:
    found = await _read(session, org, SQL.read_dead_letter.one(id, org))
    return _letter(found[0]) if found else None


async def replay_signals(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    """Back into the queue; answers which were."""
    return await _resolve(session, SQL.replay_signals.arrays([ids], org, by, why))


async def replay_work(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    """Back into the queues of their handlers, unless the steps have ended by other means; answers which were."""
    return await _resolve(session, SQL.replay_work.arrays([ids], org, by, why))


async def discard(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    """Let go for good; answers which were."""
    return await _resolve(session, SQL.discard_letters.arrays([ids], org, by, why))


async def _resolve(session: Session, query: Query) -> list[str]:
    results = await session.once(PIN, query)
    return [str(UUID(bytes=id)) for (id,) in rows(results[1])]


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _letter(row: list[Any]) -> DeadLetter:
    id, instance, source, reason, envelope, error, attempts, worker, created, resolved, resolution, by, why = row
    return DeadLetter(
        id=str(UUID(bytes=id)),
        instance_id=str(UUID(bytes=instance)),
        source=source.decode(),
        reason=reason.decode(),
        envelope=msgspec.json.decode(envelope[1:]),
        error=None if error is None else msgspec.json.decode(error[1:]),
        attempts=read_int(attempts),
        worker=None if worker is None else str(UUID(bytes=worker)),
        created_at=to_datetime(read_int(created)),
        resolved_at=None if resolved is None else to_datetime(read_int(resolved)),
        resolution=_text(resolution),
        resolved_by=_text(by),
        resolved_why=_text(why),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
