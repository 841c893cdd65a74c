"""Instances with their positions: the tokens, and the definition that gives these a meaning."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.model.snapshot import read_state
from holdfast.core.model.state import State
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.reads.instances import Instance, Step, read_row, step_of


class Whereabouts(msgspec.Struct, frozen=True):
    view: Instance
    definition: bytes
    state: State


async def read_whereabouts(session: Session, org: str, id: bytes) -> Whereabouts | None:
    results = await session.once(SQL.use_tenant.one(org), SQL.read_whereabouts.one(id, id[15], org))
    found = rows(results[1])
    return whereabouts_of(found[0]) if found else None


async def read_past(session: Session, org: str, id: bytes, most: int) -> tuple[Whereabouts, list[Step]] | None:
    """Read an instance with its last visits, in the order they happened."""
    where, steps = SQL.read_whereabouts.one(id, id[15], org), SQL.list_last_steps.one(id, id[15], org, most)
    results = await session.once(SQL.use_tenant.one(org), where, steps)
    found = rows(results[1])
    return (whereabouts_of(found[0]), [step_of(row) for row in reversed(rows(results[2]))]) if found else None


def whereabouts_of(row: list[Any]) -> Whereabouts:
    *columns, definition, state = row
    return Whereabouts(read_row(columns), definition, read_state(state[1:]))
