"""Instances of machines that a trigger makes sure of: inserted, or found, at the beginning of its own commit.

It comes before any lock, because it waits for a transaction that is inserting the same key.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.store.pg.session import BEGIN, Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import pin_impatiently
from holdfast.store.pg.wire import read_int


class Ensure(msgspec.Struct, frozen=True, gc=False):
    """The instance a trigger needs, as it is inserted if it is missing."""

    id: bytes
    org: str
    definition: bytes
    flow: str
    flow_version: int
    key: str
    ref: str
    created_by: str | None
    trace: str | None
    stale: float | None  # seconds of rest that are told first
    is_told: bool = True  # it needs a consumer of transitions

    @property
    def machine(self) -> tuple[str, str, str]:
        """Organisation, environment and definition."""
        environment, _, definition = self.flow.partition(".")
        return self.org, environment, definition

    @property
    def order(self) -> tuple[str, str, str]:
        return self.org, self.flow, self.key


async def ensure_instances(session: Session, wanted: Sequence[Ensure]) -> list[bytes | None]:
    """Begin a transaction and make sure of these instances, sorted by key: their ids; None where no consumer is."""
    inserts = SQL.ensure_instances.rows([_row(one) for one in wanted])
    found = SQL.find_ensured.rows([(one.key, one.org, one.flow, one.id[15]) for one in wanted])
    results = await session.run([BEGIN, pin_impatiently(session), inserts, found])
    holders = {read_int(number): id for number, id in rows(results[3])}
    return [holders.get(number) for number in range(1, len(wanted) + 1)]


def _row(one: Ensure) -> tuple[object, ...]:
    _, environment, definition = one.machine
    return (
        one.id, one.id[15], one.org, one.definition, one.flow, one.flow_version, one.key, one.ref, one.created_by,
        one.trace, one.stale, environment, definition, one.is_told,
    )  # fmt: skip


def takers_of(machines: Sequence[tuple[str, str, str]]) -> Query:
    return SQL.find_takers.rows(machines)
