"""Sides: the graphs of a type of documents that are compared or simulated: the envelope, a published one, the draft."""

from __future__ import annotations

import asyncio
from typing import Final, Literal

import msgspec

from holdfast.doors.envelope.effective import compile_effective, compile_envelope
from holdfast.doors.envelope.lowering import graph_name
from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled
from holdfast.graph.difference.compare import difference
from holdfast.graph.difference.model import Difference
from holdfast.runtime.envelopes import drafts
from holdfast.runtime.envelopes.contracts import read_document
from holdfast.runtime.envelopes.patches import base_of, effective
from holdfast.runtime.envelopes.tables import tables_of
from holdfast.runtime.validation import check_version
from holdfast.store.contracts import read_numbers
from holdfast.store.pg.session import Session
from holdfast.views.difference_page import difference_page
from holdfast.views.difference_words import names_of

ENVELOPE: Final = "envelope"
DRAFT: Final = "draft"
Before = int | Literal["envelope"]
After = int | Literal["draft"]


class Sides(msgspec.Struct, frozen=True):
    """Two graphs of one type of documents."""

    before: Compiled
    after: Compiled
    is_draft: bool  # the second one

    def difference(self) -> Difference:
        return difference(self.before, self.after)

    def page(self) -> str:
        return difference_page(self.before, self.after, names_of(self.difference(), is_draft=self.is_draft))


async def read_sides(session: Session, org: str, type: str, before: Before, after: After) -> Sides:
    """Read both graphs. The envelope is the one that the second graph was made for."""
    second, base = await _read(session, org, type, after)
    if before == ENVELOPE:
        contract = (await read_document(session, org, type, base)).contract
        first = await asyncio.to_thread(compile_envelope, contract)
    else:
        first, _ = await _read(session, org, type, before)
    return Sides(first, second, after == DRAFT)


async def read_graph(session: Session, org: str, type: str, version: After | None) -> Compiled:
    """Read the graph of a patch's version, by default the one in force; or compile the draft's."""
    return (await _read(session, org, type, version))[0]


def check_side(side: int | str | None, what: str, *words: str) -> None:
    """Check that a side is the version of a patch or one of these words."""
    if not isinstance(side, str):
        check_version(side, what)
    elif side not in words:
        raise DefinitionError(
            f"{side!r} is no {what}.",
            code="NOT_COMPARABLE",
            hint=f"Write the version of a patch, or {' or '.join(words)}.",
        )


async def _read(session: Session, org: str, type: str, version: int | str | None) -> tuple[Compiled, int]:
    """A graph, and the version of the contract it was made for."""
    if isinstance(version, str):
        return await _draft(session, org, type)
    found = await effective(session, org, type, version)
    return found.graph, found.envelope


async def _draft(session: Session, org: str, type: str) -> tuple[Compiled, int]:
    """Compile the draft under the number that it would be published with."""
    patch = (await drafts.read(session, org, type)).patch
    base = await base_of(session, org, patch)
    numbers = await read_numbers(session, org, graph_name(type))
    numbered = msgspec.structs.replace(patch, version=numbers.last + 1)
    tables = await tables_of(session, org, patch)
    return await asyncio.to_thread(compile_effective, base.contract, numbered, tables=tables), base.version
