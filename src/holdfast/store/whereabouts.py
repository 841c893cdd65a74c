"""Instances together with where they stand: the tokens, and the definition that says what these mean."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.snapshot import read_state
from holdfast.core.state import State
from holdfast.store.reads import Instance, Step, read_row, step_of
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL


class Whereabouts(msgspec.Struct, frozen=True):
    view: Instance
    definition: bytes
    state: State


async def read_whereabouts(session: Session, org: str, id: bytes) -> Whereabouts | None:
    results = await session.once(SQL.use_tenant.one(org), SQL.read_whereabouts.one(id, id[15], org))
    found = rows(results[1])
    return whereabouts_of(found[0]) if found else None


async def read_past(session: Session, org: str, id: bytes, most: int) -> tuple[Whereabouts, list[Step]] | None:
    """With the visits that were opened last, in the order they happened."""
    where, steps = SQL.read_whereabouts.one(id, id[15], org), SQL.list_last_steps.one(id, id[15], org, most)
    results = await session.once(SQL.use_tenant.one(org), where, steps)
    found = rows(results[1])
    return (whereabouts_of(found[0]), [step_of(row) for row in reversed(rows(results[2]))]) if found else None


def whereabouts_of(row: list[Any]) -> Whereabouts:
    *columns, definition, state = row
    return Whereabouts(read_row(columns), definition, read_state(state[1:]))
