"""Consumers: who takes the facts of machines."""

from __future__ import annotations

from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL


async def find_consumer(session: Session, org: str, environment: str, name: str) -> bytes | None:
    results = await session.once(SQL.use_worker.one(), SQL.find_consumer.one(org, environment, name))
    return next((id for (id,) in rows(results[1])), None)
