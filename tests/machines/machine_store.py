"""Consumers and claims straight in the store, without a worker."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from machine_rows import Db

from holdfast.store import consumers, deliveries
from holdfast.store.consumers import KnownConsumer, NewConsumer
from holdfast.store.deliveries import Claimed, Wanted
from holdfast.store.pg.session import Session

PENDING, DELIVERED = 40_000_000, 240_000_000


async def register(session: Session, name: str = "billing", way: str = "pull", **wishes: Any) -> KnownConsumer:
    known = await consumers.register(session, "default", NewConsumer(environment="prod", name=name, way=way, **wishes))  # type: ignore[arg-type]
    await fill(session)
    return known


async def fill(session: Session, page: int = 1000) -> None:
    """Take steps until every consumer has its past."""
    while found := await consumers.list_filling(session):
        for one in found:
            await consumers.step(session, one, page)


async def claim(session: Session, *of: KnownConsumer, room: int = 100, is_probe: bool = False) -> list[Claimed]:
    wanted = [Wanted(c.id, room, PENDING, is_probe) for c in of]
    return await deliveries.claim_deliveries(session, wanted, 200, DELIVERED)


def now(db: Db) -> datetime:
    row = db.execute("select holdfast.clock()").fetchone()
    assert row is not None
    return row[0]
