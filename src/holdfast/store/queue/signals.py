"""Signals sent from outside a commit: events addressed by key, and signals that are due later.

One function in the database stores a keyed event and reaches the waits that are there. A signal for later waits among
the timers, under its own id.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.model.timestamps import seconds
from holdfast.errors import Conflict, NotFound, Refused
from holdfast.store.pg.session import DatabaseError, Session
from holdfast.store.pg.statements import SQL


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


class Later(msgspec.Struct, frozen=True):
    """An event on its way: what it says, who sent it, what it expects, and when it is due."""

    instance: bytes
    event: str
    payload: bytes | None
    id: bytes
    node: str | None = None
    token: str | None = None
    by: str | None = None
    capabilities: Sequence[str] = ()
    if_version: int | None = None
    at: int | None = None
    delay: float | None = None


async def send_later(session: Session, org: str, later: Later) -> None:
    delay = None if later.delay is None else seconds(later.delay)
    query = SQL.send_signal.arrays(
        [later.capabilities], later.instance, later.event, later.payload, later.id, later.node,
        later.by or "system", org, later.token, later.if_version, later.at, delay,
    )  # fmt: skip
    try:
        await session.once(SQL.use_worker.one(), query)
    except DatabaseError as error:
        if error.sqlstate == "HF409" and "other content" in error.text:
            raise Conflict(f"{error.text}.", code="SIGNAL_ID_REUSED", hint="Use a new id for a new signal.") from None
        if error.sqlstate == "HF409":
            raise Conflict(f"{error.text}.", code="INSTANCE_OVER", hint="Start a new one.") from None
        if error.sqlstate == "HF404":
            raise NotFound(f"{error.text}.", code="INSTANCE_UNKNOWN", hint="Check the id.") from None
        if error.sqlstate == "HF422":
            raise Refused(f"{error.text}.", code="TIMER_OUT_OF_RANGE", hint="Check the due time.") from None
        raise
