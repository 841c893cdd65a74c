"""Runtime snapshots, from which the engine would resume an instance, read from the view `holdfast.runtime`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.wire import read_int


class Runtime(msgspec.Struct, frozen=True):
    """The runtime columns of one instance. A signal that is meant for its wait alone brings the `waiting_token`."""

    instance_id: str
    status: str
    state_version: int
    snapshot_format: int
    waiting_kind: str | None
    waiting_token: str | None
    waiting_until: datetime | None
    active_step: str | None
    active_task: str | None
    resume_pointer: Any  # the live tokens: token, node, phase, step and run of each
    last_signal: str | None
    last_error_code: str | None
    last_error: Any
    last_executed_by: str | None  # the worker of the last commit
    last_executed_at: datetime


async def read_runtime(session: Session, org: str, id: bytes) -> Runtime | None:
    results = await session.once(SQL.use_tenant.one(org), SQL.read_runtime.one(id, id[15], org))
    found = rows(results[1])
    return _runtime(found[0]) if found else None


def _runtime(row: list[Any]) -> Runtime:
    (id, status, version, format, kind, token, until, step, task, pointer, signal, code, error, by, at) = row
    return Runtime(
        instance_id=str(UUID(bytes=id)),
        status=status.decode(),
        state_version=read_int(version),
        snapshot_format=read_int(format),
        waiting_kind=_text(kind),
        waiting_token=_text(token),
        waiting_until=None if until is None else to_datetime(read_int(until)),
        active_step=_uuid(step),
        active_task=_uuid(task),
        resume_pointer=None if pointer is None else msgspec.json.decode(pointer[1:]),
        last_signal=_text(signal),
        last_error_code=_text(code),
        last_error=None if error is None else msgspec.json.decode(error[1:]),
        last_executed_by=_uuid(by),
        last_executed_at=to_datetime(read_int(at)),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _uuid(value: bytes | None) -> str | None:
    return None if value is None else str(UUID(bytes=value))
