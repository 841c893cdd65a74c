"""Effects in the database: claim due ones, store their outcomes, free lost ones, list them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.timestamps import from_datetime, to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int
from holdfast.store.reads.steps import BEGINNING, Moment

PAGE: Final = 200  # targets looked at in one round trip
WINDOW: Final = 500  # effects that are looked at to find those that fit
UNDELIVERED: Final = ("pending", "processing", "failed", "dead_letter")
EffectPlace = tuple[Moment, UUID]  # moment and id: where an effect stands among those of its instance
FIRST: Final[EffectPlace] = (BEGINNING[0], UUID(int=0))
STATUSES: Final = (*UNDELIVERED, "completed")


class EffectKey(msgspec.Struct, frozen=True, gc=False):
    """Key of a leased effect's row, with its fence."""

    instance: bytes
    created_at: int
    id: bytes
    fence: int


class ClaimedEffect(msgspec.Struct, frozen=True, gc=False):
    """An effect leased to this worker for one attempt."""

    row: EffectKey
    worker: bytes
    org: str
    token: str
    kind: str
    target: str
    payload: bytes
    key: str
    attempts: int
    max_attempts: int
    trace: str | None


class FinishedEffect(msgspec.Struct, frozen=True, gc=False):
    """Outcome of one attempt."""

    row: EffectKey
    worker: bytes
    status: str  # completed | failed | dead_letter
    delay: int = 0  # microseconds until the next attempt
    evidence: bytes | None = None
    error: bytes | None = None
    output: bytes | None = None


class CountedOutcome(msgspec.Struct, frozen=True, gc=False):
    """An outcome that was stored under its lease; of a failed attempt it has the place."""

    id: bytes
    fence: int
    awaited: bool
    flow: str | None
    step: str | None


class LostDelivery(msgspec.Struct, frozen=True, gc=False):
    """An effect whose worker is lost, or whose attempt has run out of time."""

    id: bytes
    instance: bytes
    org: str
    kind: str
    target: str
    attempts: int
    flow: str
    step: str | None


class Effect(msgspec.Struct, frozen=True):
    """One effect as a user sees it."""

    id: str
    instance_id: str
    token: str
    kind: str
    target: str
    key: str
    awaited: bool
    status: str
    attempts: int
    max_attempts: int
    next_attempt_at: datetime | None
    config: Any
    data: Any
    evidence: Any
    error: Any
    created_at: datetime
    completed_at: datetime | None


class WantedEffects(msgspec.Struct, frozen=True):
    """Filter for effects; a field that is None does not filter."""

    statuses: Sequence[str] = UNDELIVERED
    kind: str | None = None
    flow: str | None = None


async def list_targets(session: Session, kind: str) -> dict[str, float]:
    """Targets with outstanding effects of a kind, and in how many seconds the first of each is due."""
    found: dict[str, float] = {}
    after = ""
    while True:
        results = await session.once(PIN, SQL.list_effect_targets.one(kind, after, PAGE))
        page = rows(results[1])
        found.update({target.decode(): read_int(due) / 1_000_000 for target, due in page})
        if len(page) < PAGE:
            return found
        after = page[-1][0].decode()


async def claim_effects(
    session: Session, wanted: Sequence[tuple[str, str, int, str]], room: int, share: int, worker: bytes, patience: int
) -> list[ClaimedEffect]:
    """Due effects of (kind, target, most at the same time, organisations passed over, a line each): at most `room`, and
    at most `share` of one target."""
    claim = SQL.claim_effects.rows(wanted, room, worker, patience, share)
    results = await session.once(PIN, SQL.lock_effect_claims.one(), claim)
    return [
        ClaimedEffect(
            row=EffectKey(instance, read_int(created), id, read_int(fence)),
            worker=worker,
            org=org.decode(),
            token=token.decode(),
            kind=kind.decode(),
            target=target.decode(),
            payload=payload[1:],
            key=key.decode(),
            attempts=read_int(attempts),
            max_attempts=read_int(most),
            trace=None if trace is None else trace.decode(),
        )
        for instance, created, id, fence, org, token, kind, target, payload, key, attempts, most, trace in rows(
            results[2]
        )
    ]


async def finish_effects(session: Session, finished: Sequence[FinishedEffect]) -> list[CountedOutcome]:
    """Store many outcomes in one commit and return those that counted: their lease was good."""
    batch = [
        (f.row.instance, f.row.instance[15], f.row.created_at, f.row.id, f.row.fence, f.worker, f.status, f.delay,
         f.evidence, f.error, f.output)
        for f in sorted(finished, key=lambda f: (f.row.instance, f.row.id))
    ]  # fmt: skip
    results = await session.once(PIN, SQL.finish_effects.rows(batch))
    return [
        CountedOutcome(id, read_int(fence), awaited == b"\1", _text(flow), _text(step))
        for id, fence, awaited, flow, step in rows(results[1])
    ]


async def reclaim_effects(session: Session, limit: int) -> list[LostDelivery]:
    """Free the effects of dead workers and of attempts past their deadline."""
    results = await session.once(PIN, SQL.reclaim_effects.one(limit))
    return [
        LostDelivery(
            id, instance, org.decode(), kind.decode(), target.decode(), read_int(attempts), flow.decode(), _text(step)
        )
        for id, instance, org, kind, target, attempts, flow, step in rows(results[1])
    ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


async def list_claimed(session: Session, worker: bytes) -> list[EffectKey]:
    results = await session.once(PIN, SQL.list_claimed_effects.one(worker))
    return [
        EffectKey(instance, read_int(created), id, read_int(fence)) for instance, created, id, fence in rows(results[1])
    ]


async def return_effects(session: Session, claims: Sequence[EffectKey], worker: bytes) -> None:
    """Return claimed effects that never began: the attempt does not count."""
    if claims:
        batch = [(c.instance, c.instance[15], c.created_at, c.id, c.fence) for c in claims]
        await session.once(PIN, SQL.return_effects.rows(batch, worker))


async def leave_effects(session: Session, left: Sequence[tuple[EffectKey, bytes]], worker: bytes) -> None:
    """Return effects that this worker cannot deliver, each with the reason, and wake other workers."""
    batch = [(c.instance, c.instance[15], c.created_at, c.id, c.fence, error) for c, error in left]
    await session.once(PIN, SQL.leave_effects.rows(batch, worker), SQL.notify_workers.one())


def place_of_effect(effect: Effect) -> EffectPlace:
    return from_datetime(effect.created_at), UUID(effect.id)


async def list_effects_of_instance(
    session: Session, org: str, instance: bytes, after: EffectPlace = FIRST, limit: int | None = None
) -> list[Effect]:
    moment, id = after
    query = SQL.list_effects_of_instance.one(instance, instance[15], org, moment, id.bytes, limit)
    return [_effect(row) for row in await _read(session, org, query)]


async def list_effects(
    session: Session, org: str, wanted: WantedEffects, after: bytes | None, limit: int
) -> tuple[list[Effect], bytes | None]:
    """Newest first, and where the next page begins; None when there is none.

    Those of one kind or flow are looked for among the next few hundred only, so that a rare one does not cost all of
    history.
    """
    window = limit + 1 if wanted.kind is None and wanted.flow is None else max(limit + 1, WINDOW)
    query = SQL.list_effects.arrays([wanted.statuses], org, after, wanted.kind, wanted.flow, window, limit + 1)
    seen = await _read(session, org, query)
    fitting = [row for row in seen if row[1] is not None]
    page = [_effect(row[1:]) for row in fitting[:limit]]
    if len(fitting) > limit:
        return page, fitting[limit - 1][0]
    return page, seen[-1][0] if len(seen) == window else None


async def read_effect(session: Session, org: str, id: bytes) -> Effect | None:
    found = await _read(session, org, SQL.read_effect.one(id, org))
    return _effect(found[0]) if found else None


async def replay_effects(
    session: Session, org: str, ids: Sequence[bytes], by: str | None, reason: str | None
) -> list[tuple[bytes, bytes]]:
    """Let dead effects be delivered again; those that were dead, each with its instance."""
    if not ids:
        return []
    query = SQL.replay_effects.rows([(id, id[15]) for id in sorted(ids)], org, by, reason)
    results = await session.once(PIN, query)
    return [(id, instance) for id, instance in rows(results[1])]


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _effect(row: list[Any]) -> Effect:
    (id, instance, token, kind, target, key, awaited, status, attempts, most, due, payload, evidence, error, created,
     completed) = row  # fmt: skip
    asked = msgspec.json.decode(payload[1:])
    state = status.decode()
    return Effect(
        id=str(UUID(bytes=id)),
        instance_id=str(UUID(bytes=instance)),
        token=token.decode(),
        kind=kind.decode(),
        target=target.decode(),
        key=key.decode(),
        awaited=awaited == b"\1",
        status=state,
        attempts=read_int(attempts),
        max_attempts=read_int(most),
        next_attempt_at=to_datetime(read_int(due)) if state in ("pending", "failed") else None,
        config=asked.get("config"),
        data=asked.get("data"),
        evidence=_json(evidence),
        error=_json(error),
        created_at=to_datetime(read_int(created)),
        completed_at=None if completed is None else to_datetime(read_int(completed)),
    )


def _json(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value[1:])
