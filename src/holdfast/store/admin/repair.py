"""Interventions in one instance, under its lock: read everything about it, write a snapshot, set it in motion again.

Nothing here goes through the committer: these are an operator's repairs of instances that the committer cannot move.
Each raises the version, so that a snapshot held in memory elsewhere is refused, and leaves a line in the audit trail.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.model.rows import StepRow
from holdfast.core.model.snapshot import read_state
from holdfast.core.model.state import EMPTY, Instance, State, encode_state
from holdfast.core.model.status import TERMINAL, InstanceStatus, StepStatus
from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import HoldfastError
from holdfast.store.admin.connection import Errand

_FOLDER = "repair"


class Missing(msgspec.Struct, frozen=True):
    """The missing piece of a stuck instance: work, timer, child, effect, start or tokens."""

    missing: str
    path: str | None = None
    node: str | None = None
    wait: str | None = None
    ref: str | None = None


class Stuck(msgspec.Struct, frozen=True):
    """An unfinished instance that nothing will move any more."""

    id: str
    flow: str
    status: str
    version: int
    updated_at: datetime
    missing: list[Missing]
    error: Any = None
    tenant: str = ""


class Stored(msgspec.Struct, frozen=True):
    """An instance as it is stored. `state` None: the snapshot cannot be read, and `problem` says why."""

    identity: Instance  # as before the first decision
    version: int
    status: InstanceStatus
    reason: str | None
    data: bytes
    state: State | None
    problem: str | None
    now: datetime
    carried: datetime | None = None  # the moment of its newest checkpoint: rows before it may be gone


def list_stuck(errand: Errand, org: str | None, older: float, after: bytes | None, limit: int) -> list[Stuck]:
    """List stuck instances of one organisation, or without a name of all."""
    orgs = [name for (name,) in errand.run(_FOLDER, "list_orgs")] if org is None else [org]
    return [
        Stuck(str(id), flow, status, version, moment, msgspec.convert(missing, list[Missing]), error, tenant)
        for id, flow, status, version, moment, error, missing, tenant in errand.run(
            _FOLDER, "list_stuck", orgs, older, after, limit
        )
    ]


def find_definition(errand: Errand, org: str, id: bytes) -> bytes | None:
    found = errand.run(_FOLDER, "read_definition_id", id, id[15], org)
    return found[0][0].bytes if found else None


def list_migrations(errand: Errand, id: bytes) -> list[bytes]:
    """Read the detail of each migration of the instance."""
    return [detail.encode() for (detail,) in errand.run(_FOLDER, "list_migrations", id, id[15])]


def lock_instance(errand: Errand, org: str, id: bytes) -> Stored | None:
    """Lock and read an instance; wait up to two seconds, like every request about one instance."""
    found = errand.run(_FOLDER, "lock_instance", id, id[15], org)
    if not found:
        return None
    (_, _, definition, flow, flow_version, version, status, state, data, reason, entity, parent, token, input,
     now, carried) = found[0]  # fmt: skip
    identity = Instance(
        id=id,
        org=org,
        definition=definition.bytes,
        flow=flow,
        flow_version=flow_version,
        version=0,
        status=InstanceStatus.PENDING,
        state=EMPTY,
        data=input.encode() if input.startswith("{") else b"{}",
        reason=None,
        entity_version=entity,
        parent=parent and parent.bytes,
        parent_token=token,
    )
    try:
        known, problem = (read_state(state.encode()) if version else EMPTY), None
    except HoldfastError as unreadable:
        known, problem = None, unreadable.message
    return Stored(
        identity=identity,
        version=version,
        status=InstanceStatus(status),
        reason=reason,
        data=data.encode(),
        state=known,
        problem=problem,
        now=now,
        carried=carried,
    )


def read_rows(errand: Errand, stored: Stored) -> list[StepRow]:
    """Read the rows that tell the instance: from its newest checkpoint on."""
    id = stored.identity.id
    return [_step_row(row) for row in errand.run(_FOLDER, "read_step_rows", id, id[15], stored.carried)]


def count_receipts(errand: Errand, stored: Stored) -> int:
    id = stored.identity.id
    return errand.one(_FOLDER, "count_receipts", id, id[15], stored.carried)[0]


def list_work(errand: Errand, id: bytes) -> dict[str, int]:
    """The fence of each token that has work, by path."""
    return dict(errand.run(_FOLDER, "list_work_paths", id, id[15]))


def find_missing(errand: Errand, id: bytes) -> list[Missing]:
    return msgspec.convert(errand.one(_FOLDER, "find_missing", id, id[15])[0], list[Missing])


def write_snapshot(
    errand: Errand, stored: Stored, after: Instance, waiting: tuple[str | None, datetime | None]
) -> None:
    errand.one(
        _FOLDER, "write_snapshot", after.id, after.bucket, stored.version, after.version, str(after.status),
        after.reason, encode_state(after.state).decode(), after.data.decode(), *waiting, stored.now,
        after.status in TERMINAL,
    )  # fmt: skip


def raise_version(errand: Errand, stored: Stored) -> int:
    id = stored.identity.id
    return errand.one(_FOLDER, "raise_version", id, id[15], stored.version, stored.now)[0]


def note(errand: Errand, stored: Stored, version: int, type: str, by: str, detail: dict[str, Any]) -> None:
    written, whom = msgspec.json.encode(detail).decode(), stored.identity
    errand.run(_FOLDER, "note_event", whom.id, whom.bucket, whom.org, stored.now, version, type, by, written)


def dispatch(
    errand: Errand, id: bytes, at: datetime, step: bytes, queue: str, patience: float | None, fence: int, ripe: datetime
) -> bool:
    """False: the step is closed, or its work is there."""
    return bool(errand.run(_FOLDER, "dispatch_step", id, id[15], at, step, queue, patience, fence, ripe))


def set_timer(
    errand: Errand, whom: Instance, timer: bytes, purpose: str, wait: str, path: str, due: datetime, now: datetime
) -> bool:
    payload = msgspec.json.encode({"path": path}).decode()
    return bool(
        errand.run(_FOLDER, "set_timer", whom.id, whom.bucket, timer, whom.org, purpose, wait, payload, due, now)
    )


def start_again(errand: Errand, stored: Stored) -> bool:
    whom = stored.identity
    return bool(errand.run(_FOLDER, "start_again", whom.id, whom.bucket, whom.org, stored.now))


def begin_again(errand: Errand, stored: Stored, new: bytes, input: bytes, by: str, started: dict[str, Any]) -> None:
    """A new instance of the same flow and version that begins where `started` says."""
    old, payload = stored.identity.id, msgspec.json.encode(started).decode()
    errand.one(
        _FOLDER, "begin_again", new, new[15], old, old[15], input.decode(), by, payload, stored.now
    )  # fmt: skip


class Asked(msgspec.Struct, frozen=True):
    """A re-run that carries an idempotency key, as its receipt knows it."""

    key: str
    step: str
    payload: bytes  # what else it says

    @property
    def receipt(self) -> str:
        """The receipt id, with a prefix that keeps it apart from the ids of signals in the same table."""
        return f"rerun:{self.key}"


class Before(msgspec.Struct, frozen=True):
    """Earlier effect of an idempotency key. `began` None: the instance itself returned to the step."""

    is_same: bool
    began: bytes | None


def find_rerun(errand: Errand, id: bytes, asked: Asked) -> Before | None:
    found = errand.run(_FOLDER, "find_rerun", id, id[15], asked.receipt, asked.payload.decode(), asked.step, asked.key)
    if not found:
        return None
    is_same, began = found[0]
    return Before(is_same, None if began is None else UUID(began).bytes)


def keep_rerun(errand: Errand, stored: Stored, asked: Asked) -> None:
    whom = stored.identity
    errand.run(
        _FOLDER, "keep_rerun", whom.id, whom.bucket, asked.receipt, asked.payload.decode(), asked.step, whom.org,
        stored.now,
    )  # fmt: skip


def tell_parent(errand: Errand, stored: Stored, child: str) -> bool:
    """False: there is no such child, or it is not over."""
    whom = stored.identity
    return bool(errand.run(_FOLDER, "tell_parent", whom.id, whom.bucket, UUID(child), stored.version, stored.now))


def hint(errand: Errand) -> None:
    errand.run(_FOLDER, "hint_workers")


def _step_row(row: tuple[Any, ...]) -> StepRow:
    values: list[Any] = [value.bytes if isinstance(value, UUID) else value for value in row]
    values[10] = from_datetime(row[10])
    values[12] = StepStatus(row[12])
    values[14:20] = [None if value is None else value.encode() for value in row[14:20]]
    return StepRow(*values)
