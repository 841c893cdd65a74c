"""Published flows as a person looks at them. Read as the tenant, so row-level security is the second wall."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.graph.compiled import Compiled
from holdfast.graph.loading import load_compiled
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

SYSTEM: Final = "_system"  # whose flows every organisation may start
MOST_VERSION: Final = 2**31 - 1


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


class VersionPlace(msgspec.Struct, frozen=True):
    """Position of a version among those of its flow: an organisation's own first, the newest first."""

    shared: bool
    version: Annotated[int, msgspec.Meta(ge=1, le=MOST_VERSION)]
    kind: Annotated[str, msgspec.Meta(pattern="^[a-z]*$", max_length=20)]


NEWEST: Final = VersionPlace(False, MOST_VERSION, "")


def place_of_version(flow: FlowVersion) -> VersionPlace:
    return VersionPlace(flow.org == SYSTEM, flow.version, flow.kind)


async def page_flows(session: Session, org: str, after: str, limit: int) -> list[FlowVersion]:
    """List flows by name, each with the version that a start would take."""
    return [FlowVersion(*_head(row)) for row in await _read(session, org, SQL.page_flows.one(org, after, limit))]


async def page_machines(
    session: Session, org: str, environment: str | None, after: str, limit: int
) -> list[FlowVersion]:
    """List machines by name, each with the version that a new instance would take."""
    return [
        FlowVersion(*_head(row))
        for row in await _read(session, org, SQL.page_machines.one(org, environment, after, limit))
    ]


async def page_versions(session: Session, org: str, name: str, after: VersionPlace, limit: int) -> list[FlowVersion]:
    query = SQL.page_versions.one(org, name, after.shared, after.version, after.kind, limit)
    return [FlowVersion(*_head(row)) for row in await _read(session, org, query)]


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
