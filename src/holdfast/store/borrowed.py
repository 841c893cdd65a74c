"""Verbs in the caller's transaction: they happen when the caller commits and never happened when it rolls back.

A verb is one call of a function in the database that inserts a row or two, so it is atomic on an autocommit connection
too. Nothing is decided, no instance is locked, and the connection is only ever asked to run that one statement: never a
commit, a rollback, a retry or a setting. An error fails the caller's transaction as any statement of its own would, and
a serialisation failure (40001) reaches it unchanged. Workers are woken by the NOTIFY inside the functions, which
PostgreSQL delivers when the caller commits.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Protocol
from uuid import UUID

import msgspec

from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound, PayloadError, Refused
from holdfast.store.connections import Origin, fetch_value, origin_of
from holdfast.store.reads import Instance

_decode = msgspec.json.Decoder(Instance).decode


class Startable(Protocol):
    """A definition, as far as a start is concerned."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...


class BorrowedVerbs:
    def __init__(self, org: str) -> None:
        self._org = org

    async def start(
        self, conn: Any, definition: Startable, raw: bytes, key: str | None, business_key: str | None, by: str | None
    ) -> Instance:
        arguments = definition.name, raw.decode(), key, definition.version, business_key, _text(by, "actor"), self._org
        id = await _run(conn, "start_instance", arguments)
        return await self.get(conn, UUID(id).bytes)

    async def signal(
        self,
        conn: Any,
        instance: bytes,
        event: str,
        raw: bytes | None,
        node: str | None,
        id: UUID | str | None,
        by: str | None,
    ) -> Instance:
        payload = None if raw is None else raw.decode()
        names = _text(event, "event"), payload, _signal_id(id), _text(node, "node"), _text(by, "actor")
        await _run(conn, "send_signal", (_uuid(instance), *names, self._org))
        return await self.get(conn, instance)

    async def cancel(self, conn: Any, instance: bytes, reason: str | None, by: str | None) -> Instance:
        arguments = _uuid(instance), _text(reason, "reason"), _text(by, "actor"), self._org
        await _run(conn, "cancel_instance", arguments)
        return await self.get(conn, instance)

    async def get(self, conn: Any, instance: bytes) -> Instance:
        found = await _run(conn, "get_instance", (_uuid(instance), self._org))
        if found is None:
            raise NotFound(
                f"There is no instance {UUID(bytes=instance)} in sight of this connection.",
                code="INSTANCE_UNKNOWN",
                hint="Check the id and the organisation.",
            )
        return _in_utc(_decode(found))


async def _run(conn: Any, verb: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return await fetch_value(conn, verb, arguments)
    except HoldfastError:
        raise
    except Exception as error:
        origin = origin_of(error)
        if origin is None or not origin.sqlstate.startswith("HF"):
            raise
        _refuse(verb, origin, error)


# What the functions refuse, by verb where the same state means different things.
_CODES: Final = {
    ("start_instance", "HF404"): "FLOW_UNKNOWN",
    ("start_instance", "HF409"): "IDEMPOTENCY_KEY_REUSED",
    ("send_signal", "HF409"): "SIGNAL_ID_REUSED",
    ("cancel_instance", "HF409"): "INSTANCE_OVER",
}
_REFUSALS: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "HF403": (Forbidden, "ORG_FORBIDDEN"),
    "HF404": (NotFound, "INSTANCE_UNKNOWN"),
    "HF409": (Conflict, "CONFLICT"),
    "HF413": (PayloadError, "PAYLOAD_TOO_LARGE"),
    "HF422": (Refused, "ARGUMENT_INVALID"),
}


def _refuse(verb: str, origin: Origin, error: Exception) -> NoReturn:
    kind, usual = _REFUSALS.get(origin.sqlstate, (HoldfastError, "VERB_REFUSED"))
    code = _CODES.get((verb, origin.sqlstate), usual)
    if "refuse_terminal" in origin.context:
        code = "INSTANCE_OVER"
    raise kind(f"{origin.message}.", code=code, hint=origin.hint) from error


def _text(value: str | None, what: str) -> str | None:
    """The database refuses such text too, but its driver says so in its own words."""
    if value is not None and ("\x00" in value or any(0xD800 <= ord(c) < 0xE000 for c in value)):
        raise Refused(f"The {what} must be valid text without NUL.", code="TEXT_INVALID")
    return value


def _signal_id(id: UUID | str | None) -> str | None:
    try:
        return None if id is None else str(UUID(str(id)))
    except ValueError:
        raise NotFound(f"{id!r} is not an id.", code="ID_INVALID", hint="Ids are UUIDs.") from None


def _uuid(id: bytes) -> str:
    return str(UUID(bytes=id))


def _in_utc(view: Instance) -> Instance:
    """The caller's session may have any time zone."""

    def utc(moment: datetime | None) -> datetime | None:
        return None if moment is None else moment.astimezone(UTC)

    return msgspec.structs.replace(
        view,
        waiting_until=utc(view.waiting_until),
        created_at=utc(view.created_at),
        updated_at=utc(view.updated_at),
        completed_at=utc(view.completed_at),
    )
