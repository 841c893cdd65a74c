"""Verbs in the caller's transaction: they happen when the caller commits and never happened when it rolls back.

A verb is one call of a function in the database that inserts a row or two, so it is atomic on an autocommit connection
too. Nothing is decided, no instance is locked, and the connection is only ever asked to run that one statement: never a
commit, a rollback, a retry or a setting that outlives the transaction. An error fails the caller's transaction as any
statement of its own would, and a serialisation failure (40001) reaches it unchanged. Workers are woken by the NOTIFY
inside the functions, which PostgreSQL delivers when the caller commits; in an atomic block of Django by its on-commit
hook.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, Protocol
from uuid import UUID

import msgspec

from holdfast.core.model.timestamps import seconds, to_datetime
from holdfast.errors import (
    Conflict,
    DefinitionError,
    Forbidden,
    HoldfastError,
    NotFound,
    PayloadError,
    Refused,
    StoreError,
)
from holdfast.store.connections import Origin, Wake, fetch_value, origin_of, place_of
from holdfast.store.queue.signals import Later
from holdfast.store.reads.instances import Instance

_decode = msgspec.json.Decoder(Instance).decode


class Startable(Protocol):
    """A definition, as far as a start is concerned."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...


class Triggering(Protocol):
    """A trigger, checked."""

    @property
    def flow(self) -> str: ...
    @property
    def ref(self) -> str: ...
    @property
    def event(self) -> str | int: ...
    @property
    def raw(self) -> bytes | None: ...
    @property
    def request(self) -> str | None: ...
    @property
    def by(self) -> str | None: ...
    @property
    def capabilities(self) -> Sequence[str]: ...
    @property
    def expected(self) -> int | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def needs_ack(self) -> bool: ...
    @property
    def occurred_at(self) -> int | None: ...


class BorrowedVerbs:
    def __init__(self, org: str, wake: Wake | None = None) -> None:
        self._org = org
        self._wake = wake  # called in whatever thread the caller commits

    async def start(
        self,
        conn: Any,
        definition: Startable,
        raw: bytes,
        key: str | None,
        business_key: str | None,
        by: str | None,
        attributes: bytes | None = None,
        trace: str | None = None,
    ) -> Instance:
        arguments = (
            definition.name, raw.decode(), key, definition.version, business_key, _text(by, "actor"), self._org,
            None if attributes is None else attributes.decode(), trace,
        )  # fmt: skip
        id = await _run(conn, "start_instance", arguments, self._wake)
        return await self.get(conn, UUID(id).bytes)

    async def signal(self, conn: Any, later: Later) -> Instance:
        """An event through the queue, due at once or later."""
        for text, what in ((later.event, "event"), (later.node, "node"), (later.token, "token"), (later.by, "actor")):
            _text(text, what)
        payload = None if later.payload is None else later.payload.decode()
        due = None if later.at is None else to_datetime(later.at).isoformat()
        delay = None if later.delay is None else seconds(later.delay)
        arguments = (
            _uuid(later.instance), later.event, payload, _uuid(later.id), later.node, later.by, self._org, later.token,
            later.if_version, due, delay, _list(later.capabilities),
        )  # fmt: skip
        await _run(conn, "send_signal", arguments, self._wake)
        return await self.get(conn, later.instance)

    async def decide(
        self,
        conn: Any,
        task: bytes,
        decision: str,
        comment: str | None,
        raw: bytes | None,
        by: str,
        id: UUID | str | None,
        if_version: int | None,
        capabilities: Sequence[str],
        roles: Sequence[str],
    ) -> None:
        data = None if raw is None else raw.decode()
        arguments = (
            _uuid(task), decision, comment, data, by, _signal_id(id), self._org, _list(capabilities), if_version,
            _list(roles),
        )  # fmt: skip
        await _run(conn, "decide_task", arguments)

    async def cancel(self, conn: Any, instance: bytes, reason: str | None, by: str | None) -> Instance:
        arguments = _uuid(instance), _text(reason, "reason"), _text(by, "actor"), self._org
        await _run(conn, "cancel_instance", arguments, self._wake)
        return await self.get(conn, instance)

    async def trigger(self, conn: Any, wanted: Triggering, trace: str | None) -> bytes:
        """An event for a machine through the queue; the id of its instance."""
        environment, _, definition = wanted.flow.partition(".")
        arguments = (
            environment, definition, wanted.ref, str(wanted.event), None if wanted.raw is None else wanted.raw.decode(),
            wanted.request, _text(wanted.by, "actor"), wanted.expected, wanted.version, wanted.needs_ack,
            None if wanted.occurred_at is None else to_datetime(wanted.occurred_at).isoformat(), self._org,
            _list(wanted.capabilities), trace,
        )  # fmt: skip
        return UUID(await _run(conn, "trigger_machine", arguments, self._wake)).bytes

    async def ack(
        self,
        conn: Any,
        environment: str,
        consumer: str,
        ack: str,
        outcome: str,
        *,
        message: str | None,
        verdict: str | None,
        then: tuple[str, str | None] | None,
        by: str | None,
    ) -> bool:
        """The answer of a consumer in its own transaction. False: it had been given before."""
        event, payload = (None, None) if then is None else then
        arguments = (
            consumer, ack, outcome, _text(message, "message"), environment, verdict, event, payload,
            _text(by, "actor"), self._org,
        )  # fmt: skip
        return bool(await _run(conn, "acknowledge_fact", arguments, self._wake))

    async def get(self, conn: Any, instance: bytes) -> Instance:
        found = await _run(conn, "get_instance", (_uuid(instance), self._org))
        if found is None:
            raise NotFound(
                f"There is no instance {UUID(bytes=instance)} in sight of this connection.",
                code="INSTANCE_UNKNOWN",
                hint="Check the id and the organisation.",
            )
        return _in_utc(_decode(found))


async def _run(conn: Any, verb: str, arguments: tuple[Any, ...], wake: Wake | None = None) -> Any:
    try:
        return await fetch_value(conn, verb, arguments, wake)
    except HoldfastError:
        raise
    except Exception as error:
        origin = origin_of(error)
        if origin is not None and _lacks_holdfast(origin):
            raise _missing(*await place_of(conn)) from error
        if origin is None or not origin.sqlstate.startswith("HF"):
            raise
        _refuse(verb, origin, error)


def _lacks_holdfast(origin: Origin) -> bool:
    """Check for a missing schema or verb; an error from inside a function of the schema has a context."""
    return origin.sqlstate in _ABSENT and "holdfast" in origin.message and not origin.context


def _missing(database: str, host: str) -> StoreError:
    named = f"database {database!r}" if database else "database"
    return StoreError(
        f"The {named} of the connection you passed" + (f", on {host}," if host else "") + " has no Holdfast.",
        code="SCHEMA_MISSING",
        hint="Pass a connection to the engine's database, or run `holdfast db migrate` there.",
        database=database,
        host=host,
    )


_ABSENT: Final = ("3F000", "42883")  # no such schema, no such function


# What the functions refuse, by verb where the same state means different things.
_CODES: Final = {
    ("start_instance", "HF404"): "FLOW_UNKNOWN",
    ("start_instance", "HF409"): "IDEMPOTENCY_KEY_REUSED",
    ("send_signal", "HF409"): "SIGNAL_ID_REUSED",
    ("cancel_instance", "HF409"): "INSTANCE_OVER",
    ("trigger_machine", "HF404"): "FLOW_UNKNOWN",
    ("trigger_machine", "HF409"): "SIGNAL_ID_REUSED",
    ("trigger_machine", "HF422"): "TRIGGER_REFUSED",
    ("acknowledge_fact", "HF404"): "ACK_UNKNOWN",
    ("decide_task", "HF404"): "TASK_UNKNOWN",
    ("decide_task", "HF409"): "SIGNAL_ID_REUSED",
}
_REFUSALS: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "HF403": (Forbidden, "ORG_FORBIDDEN"),
    "HF404": (NotFound, "INSTANCE_UNKNOWN"),
    "HF409": (Conflict, "CONFLICT"),
    "HF413": (PayloadError, "PAYLOAD_TOO_LARGE"),
    "HF422": (Refused, "ARGUMENT_INVALID"),
}


# Functions that refuse for one reason only.
_REFUSERS: Final[dict[str, tuple[type[HoldfastError], str]]] = {
    "refuse_terminal": (Conflict, "INSTANCE_OVER"),
    "refuse_version": (Conflict, "VERSION_CONFLICT"),
    "refuse_closed_task": (Conflict, "TASK_OVER"),
    "refuse_held_task": (Conflict, "TASK_CLAIMED"),
    "require_consumer": (Refused, "CONSUMER_MISSING"),
    "refuse_document": (Refused, "DOCUMENT_NEEDED"),
    "refuse_stale": (DefinitionError, "WORKFLOW_COMPILER_STALE"),
}


def _refuse(verb: str, origin: Origin, error: Exception) -> NoReturn:
    kind, usual = _REFUSALS.get(origin.sqlstate, (HoldfastError, "VERB_REFUSED"))
    meant = kind, _CODES.get((verb, origin.sqlstate), usual)
    kind, code = next((known for refuser, known in _REFUSERS.items() if refuser in origin.context), meant)
    raise kind(f"{origin.message}.", code=code, hint=origin.hint) from error


def _text(value: str | None, what: str) -> str | None:
    """The database refuses such text too, but its driver says so in its own words."""
    if value is not None and ("\x00" in value or any(0xD800 <= ord(c) < 0xE000 for c in value)):
        raise Refused(f"The {what} must be valid text without NUL.", code="TEXT_INVALID")
    return value


def _list(names: Sequence[str]) -> str:
    """Encode names as JSON: not every driver knows arrays of text."""
    return msgspec.json.encode(list(names)).decode()


def _signal_id(id: UUID | str | None) -> str | None:
    try:
        return None if id is None else str(UUID(str(id)))
    except ValueError:
        raise NotFound(f"{id!r} is not an id.", code="ID_INVALID", hint="Ids are UUIDs.") from None


def _uuid(id: bytes) -> str:
    return str(UUID(bytes=id))


def _in_utc(view: Instance) -> Instance:
    """Convert the moments to UTC: the caller's session may have any time zone."""

    def utc(moment: datetime | None) -> datetime | None:
        return None if moment is None else moment.astimezone(UTC)

    return msgspec.structs.replace(
        view,
        waiting_until=utc(view.waiting_until),
        created_at=utc(view.created_at),
        updated_at=utc(view.updated_at),
        completed_at=utc(view.completed_at),
    )
