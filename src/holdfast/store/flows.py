"""Published flows as a person looks at them. Read as the tenant, so row-level security is the second wall."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.compiler.compiled import Compiled, load_compiled
from holdfast.core.moments import to_datetime
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL, Query
from holdfast.store.wire import read_int


class FlowVersion(msgspec.Struct, frozen=True):
    """One published version of a flow. `org` is `_system` for a flow that every organisation may start."""

    org: str
    kind: str
    name: str
    version: int
    status: str  # published | archived
    hash: str
    compiler_version: str
    created_by: str | None
    published_at: datetime


class FlowDocument(FlowVersion, frozen=True):
    """A version with what it was published from (`source`) and the graph that runs (`compiled`), both as JSON data."""

    source: Any
    compiled: Any

    @property
    def graph(self) -> Compiled:
        """The compiled graph, proved to be the one that was published."""
        return load_compiled(self.compiled, self.hash)


async def list_flows(session: Session, org: str, name: str | None) -> list[FlowVersion]:
    return [FlowVersion(*_head(row)) for row in await _read(session, org, SQL.list_flows.one(org, name))]


async def read_flow(session: Session, org: str, name: str, version: int | None) -> FlowDocument | None:
    found = await _read(session, org, SQL.read_flow.one(org, name, version))
    return FlowDocument(*_head(found[0][:9]), *map(_json, found[0][9:])) if found else None


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _head(row: list[Any]) -> tuple[Any, ...]:
    org, kind, name, version, status, digest, compiler, by, published = row
    return (
        org.decode(), kind.decode(), name.decode(), read_int(version), status.decode(), digest.decode(),
        compiler.decode(), None if by is None else by.decode(), to_datetime(read_int(published)),
    )  # fmt: skip


def _json(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value[1:])
