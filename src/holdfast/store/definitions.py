"""Published definitions: written once, read by name or by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.store.pg.session import DatabaseError, Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

WORKER = SQL.use_worker.one()
_MISSED: Final = "HF001"  # holdfast.expect


class DefinitionRow(msgspec.Struct, frozen=True):
    id: bytes
    org: str
    kind: str
    version: int
    status: str
    compiled: bytes | None
    hash: str | None
    compiler_version: str | None
    apps: dict[str, str] = {}  # whose the short names of its handlers are


async def find_definition(
    session: Session, org: str, name: str, version: int | None, *, inside: bool = False
) -> DefinitionRow | None:
    """`inside`: the session is in a transaction already."""
    return await _one(session, SQL.find_definition.one(org, name, version), inside)


async def load_definition(session: Session, id: bytes, *, inside: bool = False) -> DefinitionRow | None:
    return await _one(session, SQL.load_definition.one(id), inside)


class NewDefinition(NamedTuple):
    """A definition as it is published, in the order of the statement."""

    id: bytes
    org: str
    kind: str
    name: str
    version: int
    source: bytes
    nodes: bytes
    edges: bytes
    compiled: bytes
    hash: str
    compiler_version: str
    created_by: str | None
    apps: bytes
    shared: bytes


async def insert_definitions(session: Session, new: Sequence[NewDefinition]) -> list[bool] | None:
    """Insert all definitions or none; for each, report whether it is new. None where one exists with other content.

    Publishers of the same definitions wait for each other in one order, so there is no deadlock.
    """
    order = sorted(range(len(new)), key=lambda place: (new[place].name, new[place].version))
    inserts = [SQL.insert_definition.one(*new[place]) for place in order]
    checks = [SQL.check_definition.one(d.org, d.kind, d.name, d.version, d.hash, d.apps) for d in new]
    try:
        results = await session.once(WORKER, *inserts, *checks)
    except DatabaseError as error:
        if error.sqlstate != _MISSED:
            raise
        return None
    was_new = dict(zip(order, (result.ntuples > 0 for result in results[1:]), strict=False))
    return [was_new[place] for place in range(len(new))]


async def _one(session: Session, query: Query, inside: bool) -> DefinitionRow | None:
    results = await (session.run([query]) if inside else session.once(WORKER, query))
    found = rows(results[-1])
    if not found:
        return None
    id, org, kind, version, status, compiled, digest, compiler, apps = found[0]
    return DefinitionRow(
        id=id,
        org=org.decode(),
        kind=kind.decode(),
        version=read_int(version),
        status=status.decode(),
        compiled=None if compiled is None else compiled[1:],
        hash=None if digest is None else digest.decode(),
        compiler_version=None if compiler is None else compiler.decode(),
        apps=msgspec.json.decode(apps[1:], type=dict[str, str]),
    )
