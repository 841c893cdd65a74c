"""Definitions in memory: the graph that a start uses, and the program an instance is pinned to.

A pinned program never changes, so it is kept for good (the most recently used ones). The newest version does change:
that answer is kept for a moment only and dropped at once when this process publishes. While one caller refreshes it,
the others use the old answer.
"""

from __future__ import annotations

import time
from collections import OrderedDict

import msgspec

from holdfast.core.model.program import Program, link
from holdfast.errors import DefinitionError, NotFound, Refused
from holdfast.graph.compiled import require_current
from holdfast.graph.loading import load_compiled
from holdfast.store.definitions import DefinitionRow, find_definition, load_definition
from holdfast.store.pg.session import Session

FRESH_SECONDS = 1.0
KEPT_PROGRAMS = 1000
KEPT_NAMES = 10_000  # every organisation has its own


class Definition(msgspec.Struct, frozen=True):
    """Facts of a flow that a start needs."""

    id: bytes
    name: str
    version: int
    program: Program


class Catalog:
    def __init__(self) -> None:
        self._programs: OrderedDict[bytes, Program] = OrderedDict()
        self._names: dict[tuple[str, str, int | None], tuple[float, Definition]] = {}

    def forget(self, name: str) -> None:
        self._names = {key: value for key, value in self._names.items() if key[1] != name}

    def known(self, definition: bytes) -> Program | None:
        return self._programs.get(definition)

    def cached(self, org: str, name: str, version: int | None) -> Definition | None:
        found = self._names.get((org, name, version))
        if found is None:
            return None
        now = time.monotonic()
        if now > found[0]:
            self._names[org, name, version] = now + FRESH_SECONDS, found[1]
            return None
        return found[1]

    async def program(self, session: Session, definition: bytes, *, inside: bool = False) -> Program:
        """Load the program an instance is pinned to; the age of the compiler does not matter here (WF-07)."""
        program = self._programs.get(definition)
        if program is None:
            row = await load_definition(session, definition, inside=inside)
            if row is None:
                raise NotFound("The definition of this instance is gone.", code="DEFINITION_MISSING")
            program = self._link(row)
        return program

    async def find(
        self, session: Session, org: str, name: str, version: int | None, *, inside: bool = False
    ) -> Definition:
        """The published definition a start means, refused if this compiler could not have made it."""
        found = self.cached(org, name, version)
        if found is not None:
            return found
        row = await find_definition(session, org, name, version, inside=inside)
        if row is None:
            raise await self.unknown(session, org, name, version, inside=inside)
        if row.status != "published":
            raise DefinitionError(
                f"{name!r} version {row.version} is {row.status}.",
                code="DEFINITION_NOT_PUBLISHED",
                hint="Start a published version.",
            )
        program = self._programs.get(row.id) or self._link(row)
        require_current(program)  # also where a running instance has brought it here
        definition = Definition(row.id, name, row.version, program)
        self._names[org, name, version] = time.monotonic() + FRESH_SECONDS, definition
        if len(self._names) > KEPT_NAMES:
            del self._names[next(iter(self._names))]
        return definition

    async def startable(
        self, session: Session, org: str, name: str, version: int | None, *, inside: bool = False
    ) -> Definition:
        """The definition that a start takes, refused if only a document can be what it runs for."""
        definition = await self.find(session, org, name, version, inside=inside)
        if definition.program.rules.needs_document:
            raise Refused(
                f"{name!r} is the graph of documents, and a start names none.",
                code="DOCUMENT_NEEDED",
                hint="Start a flow of your own; such a graph runs for a document of its type.",
            )
        return definition

    async def unknown(
        self, session: Session, org: str, name: str, version: int | None, *, inside: bool = False
    ) -> NotFound:
        """The error for an unknown flow, or for an unknown version of a known one."""
        if version is not None and await find_definition(session, org, name, None, inside=inside) is not None:
            return NotFound(
                f"The flow {name!r} has no version {version}.",
                code="VERSION_UNKNOWN",
                hint="Publish it, or leave the version out.",
            )
        return NotFound(
            f"There is no flow {name!r}.", code="FLOW_UNKNOWN", hint="Publish it first, and check the organisation."
        )

    def _link(self, row: DefinitionRow) -> Program:
        program = link(load_compiled(row.compiled, row.hash), row.id, row.apps)
        self._programs[row.id] = program
        if len(self._programs) > KEPT_PROGRAMS:
            self._programs.popitem(last=False)
        return program
