"""Dead letters: work, signals, effects and deliveries that were given up, each with its envelope and the reason.

A letter is read, replayed or discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int
from holdfast.store.reads.search import ALWAYS, WINDOW, WINDOWS, moment_or


class DeadLetter(msgspec.Struct, frozen=True):
    """A signal or a step nothing could be done with. `worker` is the process that gave up; `error` is what it met.

    `step` is the node it is about; None where it is about the instance as a whole.
    """

    id: str
    instance_id: str
    flow: str
    step: str | None
    source: str  # signal | work | effect | ack | …
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


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Filter for open letters; a field that is None does not filter."""

    reason: str | None = None
    source: str | None = None
    flow: str | None = None
    step: str | None = None
    error: str | None = None
    since: datetime | None = None
    consumer: str | None = None
    environment: str | None = None


async def list_dead_letters(
    session: Session, org: str, wanted: Wanted, instance: bytes | None, after: bytes | None, limit: int
) -> tuple[list[DeadLetter], bytes | None]:
    """Open ones, newest first, and where the next page begins; a page may be short although there are more."""
    found: list[DeadLetter] = []
    for _ in range(WINDOWS):
        query, window = _look(org, wanted, instance, after, limit - len(found))
        seen = await _read(session, org, query)
        fitting = [row[1:] for row in seen if row[1] is not None]
        more = len(fitting) > limit - len(found)
        found += [_letter(row) for row in fitting[: limit - len(found)]]
        if more:
            return found, UUID(found[-1].id).bytes
        after = seen[-1][0] if len(seen) == window else None
        if after is None or len(found) == limit:
            break
    return found, after


def _look(org: str, wanted: Wanted, instance: bytes | None, after: bytes | None, limit: int) -> tuple[Query, int]:
    wished = msgspec.json.encode(wanted)
    window = limit + 1 if wished == b"{}" else max(limit + 1, WINDOW)
    told = org, after, wished, window, limit + 1
    if instance is not None:
        return SQL.list_dead_letters_of_instance.one(*told, instance), window
    since = moment_or(wanted.since, ALWAYS)
    if wanted.error is not None:
        return SQL.list_dead_letters_by_error.one(*told, since, wanted.error), window
    if wanted.flow is not None:
        return SQL.list_dead_letters_by_flow.one(*told, since, wanted.flow), window
    return SQL.list_dead_letters.one(*told), window


async def read_dead_letter(session: Session, org: str, id: bytes) -> DeadLetter | None:
    found = await _read(session, org, SQL.read_dead_letter.one(id, org))
    return _letter(found[0]) if found else None


async def replay_signals(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    """Put signals back into the queue; return the ids that were."""
    return await _resolve(session, SQL.replay_signals.arrays([ids], org, by, why))


async def replay_work(session: Session, org: str, ids: Sequence[bytes], by: str, why: str | None) -> list[str]:
    """Put work back into the queues of its handlers, unless the steps have ended meanwhile; return the ids that
    were.
    """
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
    (id, instance, flow, step, source, reason, envelope, error, attempts, worker, created, resolved, resolution, by,
     why) = row  # fmt: skip
    return DeadLetter(
        id=str(UUID(bytes=id)),
        instance_id=str(UUID(bytes=instance)),
        flow=flow.decode(),
        step=_text(step),
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
