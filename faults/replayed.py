"""WF-15 on a whole database: the step rows of every instance are folded from scratch and compared with its snapshot.

It reads the tables itself, apart from the code of the product that does the same for a repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from holdfast.core.model.program import Program, link
from holdfast.core.model.state import (
    EMPTY,
    Instance,
    decode_state,
    rollback_summary,
    scope_view,
    token_view,
    value_of,
)
from holdfast.core.model.status import InstanceStatus, StepStatus
from holdfast.core.model.timestamps import from_datetime
from holdfast.core.replay.replay import StepRow, replay
from holdfast.graph.loading import load_compiled

STEPS = """
select instance_id, id, node, behaviour, path, hop, kind, run, entity_version, opened_version, opened_ordinal,
    created_at, cause, status, outcome, chosen_edge_ids::text, input::text, output::text, error::text, detail::text,
    closing::text, calls, fence, closed_version, closed_ordinal
from holdfast.steps where instance_id = coalesce(%s, instance_id) order by instance_id
"""
INSTANCES = """
select id, org_id, definition_id, flow, flow_version, version, status, state::text, data::text, reason, entity_version,
    parent_id, parent_token, input::text
from holdfast.instances where version > 0 and id = coalesce(%s, id) order by id
"""


@dataclass(frozen=True)
class Replayed:
    instance: UUID
    steps: int
    difference: str | None  # None: the rows and the snapshot tell the same


def replay_all(connection: psycopg.Connection, only: UUID | None = None) -> Iterator[Replayed]:
    """Every instance that was decided upon, or one; all rows must come from one snapshot of the database."""
    programs = _programs(connection)
    found = connection.execute(STEPS, (only,))
    steps = {id: [_step_row(row[1:]) for row in rows] for id, rows in groupby(found, _first)}
    for row in connection.execute(INSTANCES, (only,)):
        rows = steps.get(row[0], [])
        yield Replayed(row[0], len(rows), _difference(programs, row[2], rows, *_stored(row)))


def _first(row: tuple[Any, ...]) -> UUID:
    return row[0]


def _difference(
    programs: dict[UUID, Program], definition: UUID, rows: list[StepRow], known: Instance, identity: Instance
) -> str | None:
    by_id = {id.bytes: program for id, program in programs.items()}
    try:
        rebuilt = _projection(replay(programs[definition], rows, instance=identity, programs=by_id))
    except Exception as failure:
        return f"cannot be replayed: {failure!r}"
    stored = _projection(known)
    return None if rebuilt == stored else f"the rows tell {rebuilt}, the snapshot {stored}"


def _programs(connection: psycopg.Connection) -> dict[UUID, Program]:
    found = connection.execute("select id, compiled::text, hash from holdfast.definitions where compiled is not null")
    return {id: link(load_compiled(compiled, hash), id.bytes) for id, compiled, hash in found}


def _step_row(row: tuple[Any, ...]) -> StepRow:
    values: list[Any] = [v.bytes if isinstance(v, UUID) else v for v in row]
    values[10] = from_datetime(row[10])
    values[12] = StepStatus(row[12])
    values[14:20] = [None if v is None else v.encode() for v in row[14:20]]
    return StepRow(*values)


def _stored(row: tuple[Any, ...]) -> tuple[Instance, Instance]:
    """What is stored, and what an instance is before anything is known of it."""
    id, org, definition, flow, flow_version, version, status, state, data, reason, entity, parent, token, input = row
    identity = Instance(
        id.bytes, org, definition.bytes, flow, flow_version, 0, InstanceStatus.PENDING, EMPTY,
        input.encode() if input.startswith("{") else b"{}", None, entity, parent and parent.bytes, token,
    )  # fmt: skip
    known = msgspec.structs.replace(
        identity,
        version=version,
        status=InstanceStatus(status),
        state=decode_state(state.encode()),
        data=data.encode(),
        reason=reason,
    )
    return known, identity


def _projection(instance: Instance) -> dict[str, Any]:
    state = instance.state
    return {
        "tokens": token_view(state),
        "scopes": scope_view(state),
        "data": msgspec.json.decode(instance.data),
        "status": instance.status,
        "reason": instance.reason,
        "early": state.early,
        "parked": state.parked,
        "stopping": state.stopping,
        "expires": state.expires,
        "rollback": rollback_summary(state),
        "values": {path: msgspec.json.decode(value_of(t) or b"null") for path, t in state.tokens.items()},
    }
