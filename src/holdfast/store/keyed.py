"""Events addressed by key: one function in the database stores the event and reaches the waits that are there."""

from __future__ import annotations

from holdfast.store.session import Session
from holdfast.store.statements import SQL


async def send_keyed(
    session: Session, org: str, event: str, key: str, payload: bytes | None, id: bytes, by: str | None
) -> None:
    await session.once(SQL.use_worker.one(), SQL.send_keyed.one(event, key, payload, id, by, org))
