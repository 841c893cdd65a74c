"""Published definitions: written once, read by name or by id."""

from __future__ import annotations

import msgspec

from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int

WORKER = SQL.use_worker.one()


class DefinitionRow(msgspec.Struct, frozen=True):
    id: bytes
    org: str
    kind: str
    version: int
    status: str
    compiled: bytes | None
    hash: str | None
    compiler_version: str | None


async def find_definition(
    session: Session, org: str, name: str, version: int | None, *, inside: bool = False
) -> DefinitionRow | None:
    """`inside`: the session is in a transaction already."""
    return await _one(session, SQL.find_definition.one(org, name, version), inside)


async def load_definition(session: Session, id: bytes, *, inside: bool = False) -> DefinitionRow | None:
    return await _one(session, SQL.load_definition.one(id), inside)


async def insert_definition(session: Session, values: tuple[object, ...]) -> bool:
    """True: it was not there before."""
    results = await session.once(WORKER, SQL.insert_definition.one(*values))
    return results[1].ntuples > 0


async def _one(session: Session, query: Query, inside: bool) -> DefinitionRow | None:
    results = await (session.run([query]) if inside else session.once(WORKER, query))
    found = rows(results[-1])
    if not found:
        return None
    id, org, kind, version, status, compiled, digest, compiler = found[0]
    return DefinitionRow(
        id,
        org.decode(),
        kind.decode(),
        read_int(version),
        status.decode(),
        None if compiled is None else compiled[1:],
        None if digest is None else digest.decode(),
        None if compiler is None else compiler.decode(),
    )
