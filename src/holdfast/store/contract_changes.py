"""Changes of contracts, patches and drafts: one transaction each; False: another one came first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from holdfast.store.pg.session import DatabaseError, Session
from holdfast.store.pg.statements import SQL, Query

_MISSED: Final = "HF001"  # holdfast.expect
_WORKER: Final = SQL.use_worker.one()

Action = Literal[
    "contract_published",
    "draft_saved",
    "draft_dropped",
    "patch_published",
    "patch_restored",
    "patch_archived",
    "patch_rebased",
]


class NewEnvelope(NamedTuple):
    """An envelope as it is published, in the order of the statement."""

    id: bytes
    org: str
    name: str
    version: int
    type: str
    source: bytes
    nodes: bytes
    edges: bytes
    slots: bytes
    hash: str
    compiler_version: str
    created_by: str


class NewPatch(NamedTuple):
    """A patch as it is published, in the order of the statement."""

    id: bytes
    org: str
    name: str
    version: int
    type: str
    source: bytes
    patches: bytes
    base: bytes
    hash: str
    compiler_version: str
    created_by: str


class NewEffective(NamedTuple):
    """A graph that documents run by, in the order of the statement."""

    id: bytes
    org: str
    name: str
    version: int
    type: str
    is_default: bool
    nodes: bytes
    edges: bytes
    base: bytes
    compiled: bytes
    hash: str
    compiler_version: str
    created_by: str


class NewEvent(NamedTuple):
    """A change to record, in the order of the statement."""

    org: str
    type: str
    action: Action
    version: int | None
    origin: int | None
    actor: str
    reason: str | None


async def insert_contract(
    session: Session, envelope: NewEnvelope | None, default: NewEffective | None, event: NewEvent
) -> bool:
    """Publish an envelope with the graph of documents without a patch; either may be there already."""
    new = [] if envelope is None else [SQL.insert_envelope.one(*envelope)]
    graph = [] if default is None else [SQL.insert_effective.one(*default)]
    return await _changed(session, [*new, *graph, SQL.insert_contract_event.one(*event)])


async def publish_draft(session: Session, tag: str, patch: NewPatch, graph: NewEffective, event: NewEvent) -> bool:
    """Take the draft away and publish the graph that it was compiled to."""
    return await _changed(
        session, [SQL.delete_draft.one(patch.org, patch.type, tag), *_publication(patch, graph, event)]
    )


async def insert_patch(session: Session, patch: NewPatch, graph: NewEffective, event: NewEvent) -> bool:
    return await _changed(session, _publication(patch, graph, event))


async def archive_patch(session: Session, org: str, name: str, version: int, event: NewEvent) -> bool:
    change = SQL.archive_patch.one(org, name, version)
    return await _changed(session, [change, SQL.insert_contract_event.one(*event)])


async def save_draft(
    session: Session, org: str, type: str, new: str, patch: bytes, by: str, reason: str | None, tag: str | None,
    event: NewEvent,
) -> bool:  # fmt: skip
    save = SQL.save_draft.one(org, type, new, patch, by, reason, tag)
    return await _changed(session, [save, SQL.insert_contract_event.one(*event)])


async def delete_draft(session: Session, org: str, type: str, tag: str, event: NewEvent) -> bool:
    drop = SQL.delete_draft.one(org, type, tag)
    return await _changed(session, [drop, SQL.insert_contract_event.one(*event)])


def _publication(patch: NewPatch, graph: NewEffective, event: NewEvent) -> list[Query]:
    return [
        SQL.insert_patch.one(*patch),
        SQL.insert_effective.one(*graph),
        SQL.insert_contract_event.one(*event),
    ]


async def _changed(session: Session, queries: Sequence[Query]) -> bool:
    try:
        await session.once(_WORKER, *queries)
    except DatabaseError as error:
        if error.sqlstate != _MISSED:
            raise
        return False
    return True
