"""Reads of a tenant: instances, steps, events. Row-level security is the second wall."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.rows import CARRIED
from holdfast.core.model.status import FAILURES, undo_of
from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int


class Instance(msgspec.Struct, frozen=True):
    """One run of a flow. `data` is its context; where steps pass a value on, it is the result once completed."""

    id: str
    flow: str
    flow_version: int
    status: str
    version: int
    data: Any
    input: Any
    org: str
    reason: str | None = None
    key: str | None = None
    business_key: str | None = None
    parent_id: str | None = None
    waiting_for: str | None = None
    waiting_until: datetime | None = None
    error: Any = None
    created_by: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    completed_at: datetime | None = None
    attributes: Any = None


class Step(msgspec.Struct, frozen=True):
    """One visit of one node."""

    id: str
    name: str
    behaviour: str
    token: str
    kind: str
    run: int
    status: str
    outcome: str | None
    cause: str
    attempts: int
    input: Any
    output: Any
    error: Any
    chosen_edge_ids: list[str] | None
    detail: Any
    closing: Any
    opened: tuple[int, int]
    closed: tuple[int, int] | None
    opened_by: str | None
    closed_by: str | None
    created_at: datetime
    closed_at: datetime | None

    @property
    def began_at(self) -> datetime:
        """Moment at which the step was opened. Its row is younger where it was carried into a later month."""
        since = self.detail.get("since") if self.cause == CARRIED else None
        return self.created_at if since is None else datetime.fromisoformat(since)

    @property
    def failed(self) -> bool:
        """Failure of the step itself, also after it was undone."""
        return self.outcome in FAILURES

    @property
    def undo(self) -> str | None:
        """Progress of the compensation: running, done or failed; None where there is none."""
        return undo_of(self.status, self.outcome)


class Event(msgspec.Struct, frozen=True):
    """One line of the audit trail."""

    version: int
    ordinal: int
    type: str
    node: str | None
    token: str | None
    actor: str | None
    detail: Any
    created_at: datetime


async def read_instance(session: Session, org: str, id: bytes) -> Instance | None:
    found = await _read(session, org, SQL.read_instance.one(id, id[15], org))
    return read_row(found[0]) if found else None


async def read_error(session: Session, org: str, id: bytes) -> Any:
    """The last error of an instance that may be gone."""
    found = await read_instance(session, org, id)
    return None if found is None else found.error


async def read_instances(session: Session, org: str, ids: Sequence[bytes]) -> list[Instance]:
    query = SQL.list_instances_by_id.rows([(id, id[15]) for id in ids], org)
    return [read_row(row) for row in await _read(session, org, query)]


async def list_instances(
    session: Session,
    org: str,
    *,
    flow: str | None,
    status: str | None,
    business_key: str | None,
    after: bytes | None,
    limit: int,
    key: str | None = None,
    parent: bytes | None = None,
    started: tuple[int, int] = (-(2**63), 2**63 - 1),
) -> list[Instance]:
    """`started` bounds the start, where neither a key nor a status nor a parent leads to few."""
    if parent is not None:
        query = SQL.list_instances_by_parent.one(org, flow, after, limit, parent, status, business_key, key)
    elif key is not None:
        query = SQL.list_instances_by_key.one(org, flow, after, limit, key, status, business_key)
    elif business_key is not None:
        query = SQL.list_instances_by_business_key.one(org, flow, after, limit, business_key, status)
    elif status is not None and status != "completed":  # finished well is the common case: it has no index of its own
        query = SQL.list_instances_by_status.one(org, flow, after, limit, status)
    else:
        query = SQL.list_instances.one(org, flow, after, limit, status, *started)
    return [read_row(row) for row in await _read(session, org, query)]


async def list_steps(session: Session, org: str, id: bytes) -> list[Step]:
    return [step_of(row) for row in await _read(session, org, SQL.list_steps.one(id, id[15], org))]


async def list_events(session: Session, org: str, id: bytes) -> list[Event]:
    return [event_of(row) for row in await _read(session, org, SQL.list_events.one(id, id[15], org))]


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _json(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value[1:])


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _time(value: bytes | None) -> datetime | None:
    return None if value is None else to_datetime(read_int(value))


def _uuid(value: bytes | None) -> str | None:
    return None if value is None else str(UUID(bytes=value))


def read_row(row: list[Any]) -> Instance:
    (id, org, flow, flow_version, status, reason, version, data, input, key, business_key, parent, waiting, until,
     error, by, created, updated, completed, attributes) = row  # fmt: skip
    return Instance(
        id=str(UUID(bytes=id)),
        flow=flow.decode(),
        flow_version=read_int(flow_version),
        status=status.decode(),
        version=read_int(version),
        data=_json(data),
        input=_json(input),
        org=org.decode(),
        reason=_text(reason),
        key=_text(key),
        business_key=_text(business_key),
        parent_id=_uuid(parent),
        waiting_for=_text(waiting),
        waiting_until=_time(until),
        error=_json(error),
        created_by=_text(by),
        created_at=_time(created),
        updated_at=_time(updated),
        completed_at=_time(completed),
        attributes=_json(attributes),
    )


def step_of(row: list[Any]) -> Step:
    (id, node, behaviour, path, hop, kind, run, status, outcome, cause, calls, input, output, error, chosen, detail,
     closing, opened_version, opened_ordinal, closed_version, closed_ordinal, opened_by, closed_by, created, closed,
     _, _) = row  # fmt: skip
    ended = None if closed_version is None else (read_int(closed_version), read_int(closed_ordinal))
    return Step(
        id=str(UUID(bytes=id)),
        name=node.decode(),
        behaviour=behaviour.decode(),
        token=f"{path.decode()}@{read_int(hop)}",
        kind=kind.decode(),
        run=read_int(run),
        status=status.decode(),
        outcome=_text(outcome),
        cause=cause.decode(),
        attempts=read_int(calls),
        input=_json(input),
        output=_json(output),
        error=_json(error),
        chosen_edge_ids=_json(chosen),
        detail=_json(detail),
        closing=_json(closing),
        opened=(read_int(opened_version), read_int(opened_ordinal)),
        closed=ended,
        opened_by=_text(opened_by),
        closed_by=_text(closed_by),
        created_at=to_datetime(read_int(created)),
        closed_at=_time(closed),
    )


def event_of(row: list[Any]) -> Event:
    version, ordinal, type, node, token, actor, detail, created = row
    return Event(
        read_int(version), read_int(ordinal), type.decode(), _text(node), _text(token), _text(actor), _json(detail),
        to_datetime(read_int(created)),
    )  # fmt: skip
