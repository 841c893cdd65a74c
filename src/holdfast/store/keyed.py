"""Events addressed by key: one function in the database stores the event and reaches the waits that are there."""

from __future__ import annotations

from holdfast.core.moments import seconds
from holdfast.errors import Conflict, Refused
from holdfast.store.session import DatabaseError, Session
from holdfast.store.statements import SQL


async def send_keyed(
    session: Session, org: str, event: str, key: str, payload: bytes | None, id: bytes, by: str | None, keep: float
) -> None:
    try:
        await session.once(SQL.use_worker.one(), SQL.send_keyed.one(event, key, payload, id, by, org, seconds(keep)))
    except DatabaseError as error:
        if error.sqlstate == "HF409":
            raise Conflict(f"{error.text}.", code="SIGNAL_ID_REUSED", hint="Use a new id for a new event.") from None
        if error.sqlstate == "HF422":
            raise Refused(f"{error.text}.", code="ARGUMENT_INVALID", hint="Correct it and send it again.") from None
        raise
