"""Patches: check them, publish them with the graph compiled of them, restore and archive versions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.doors.envelope.effective import check_effective, compile_effective
from holdfast.doors.envelope.findings import Finding
from holdfast.doors.envelope.lowering import graph_name
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.reading.load import require_patch
from holdfast.doors.envelope.written import patch_data, patch_hash
from holdfast.errors import Conflict, NotFound
from holdfast.graph.compiled import COMPILER_VERSION, Compiled
from holdfast.graph.integrity import in_order
from holdfast.graph.loading import load_compiled
from holdfast.payloads import canonical
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.envelopes import drafts
from holdfast.runtime.envelopes.contracts import ContractDocument, read_document
from holdfast.runtime.envelopes.graphs import event_of, graph_row
from holdfast.runtime.envelopes.tables import tables_of
from holdfast.runtime.publishing import COUNTED_TRIES
from holdfast.store import contract_changes, contracts
from holdfast.store.contract_changes import Action, NewEffective, NewEvent, NewPatch
from holdfast.store.contracts import PatchVersion, read_effective, read_numbers, read_patch
from holdfast.store.pg.session import Session


class PublishedPatch(msgspec.Struct, frozen=True):
    """A patch as it was published, with the graph of the same number."""

    type: str
    version: int
    envelope: int  # the version of the contract
    hash: str
    graph_hash: str
    warnings: tuple[Finding, ...] = ()


class PatchDocument(PatchVersion, frozen=True):
    """A published patch as it was written."""

    patch: PatchDefinition


class EffectiveDocument(msgspec.Struct, frozen=True):
    """The graph that documents of a type run by."""

    org: str
    type: str
    version: int
    status: str
    is_default: bool  # compiled of the envelope alone
    envelope: int  # the version of the contract
    hash: str
    graph: Compiled


async def check(session: Session, org: str, patch: PatchDefinition) -> tuple[Finding, ...]:
    """Find everything that is wrong with a patch; nothing is stored."""
    patch = await asyncio.to_thread(drafts.readable, patch)
    contract = (await base_of(session, org, patch)).contract
    tables = await tables_of(session, org, patch)
    return await asyncio.to_thread(check_effective, contract, patch, tables=tables)


async def base_of(session: Session, org: str, patch: PatchDefinition) -> ContractDocument:
    """Read the contract a patch was made for; the newest one if there is no such version, for the check to tell so."""
    try:
        return await read_document(session, org, patch.contract, patch.envelope)
    except NotFound as missing:
        if missing.code != "VERSION_UNKNOWN":
            raise
    return await read_document(session, org, patch.contract)


async def publish_draft(
    session: Session, org: str, type: str, by: str, reason: str | None, etag: str | None
) -> PublishedPatch:
    """Compile the draft and publish both, in one transaction that takes the draft away."""
    draft = await _seen(session, org, type, etag)

    async def store(patch: NewPatch, graph: NewEffective, event: NewEvent) -> bool:
        if await contract_changes.publish_draft(session, draft.etag, patch, graph, event):
            return True
        await _seen(session, org, type, draft.etag)
        return False  # only the number was taken

    return await _publish(session, org, draft.patch, store, "patch_published", by, reason, None)


async def restore(session: Session, org: str, type: str, version: int, by: str, reason: str | None) -> PublishedPatch:
    """Publish an old version again, as a new one."""
    found = await read(session, org, type, version)
    return await publish_again(session, org, found.patch, "patch_restored", by, reason, version)


async def publish_again(
    session: Session, org: str, patch: PatchDefinition, action: Action, by: str, reason: str | None, origin: int
) -> PublishedPatch:
    async def store(new: NewPatch, graph: NewEffective, event: NewEvent) -> bool:
        return await contract_changes.insert_patch(session, new, graph, event)

    return await _publish(session, org, patch, store, action, by, reason, origin)


async def archive(session: Session, org: str, type: str, version: int, by: str, reason: str | None) -> None:
    """Take a version out of force. The newest one that is left is in force then."""
    found = await read(session, org, type, version)
    event = event_of(org, type, "patch_archived", by, reason, version=version)
    is_over = found.status != "published"
    if is_over or not await contract_changes.archive_patch(session, org, graph_name(type), version, event):
        raise Conflict(
            f"Version {version} of the patch for {type!r} is archived already.",
            code="PATCH_ARCHIVED",
            hint="Restore it as a new version if it shall be in force again.",
        )


async def read(session: Session, org: str, type: str, version: int | None) -> PatchDocument:
    found = await read_patch(session, org, graph_name(type), version)
    if found is None:
        raise NotFound(
            f"There is no patch for {type!r}" + ("." if version is None else f" of version {version}."),
            code="PATCH_UNKNOWN",
            hint="List them: an organisation sees its own patches only.",
        )
    return await asyncio.to_thread(_document, found)


async def effective(session: Session, org: str, type: str, version: int | None) -> EffectiveDocument:
    """Read a graph that documents run by, proved to be the one that was published."""
    found = await read_effective(session, org, graph_name(type), version)
    if found is None:
        await read_document(session, org, type)
        raise NotFound(
            f"Documents of the type {type!r} have no graph" + ("." if version is None else f" of version {version}."),
            code="EFFECTIVE_UNKNOWN",
            hint="Publish a patch; a contract that demands approvals has no graph without one.",
        )
    graph = await asyncio.to_thread(load_compiled, found.compiled, found.hash)
    return EffectiveDocument(
        org=found.org,
        type=found.type,
        version=found.version,
        status=found.status,
        is_default=found.is_default,
        envelope=found.base["envelope"],
        hash=found.hash,
        graph=in_order(graph),
    )


Store = Callable[[NewPatch, NewEffective, NewEvent], Awaitable[bool]]


async def _publish(
    session: Session,
    org: str,
    patch: PatchDefinition,
    store: Store,
    action: Action,
    by: str,
    reason: str | None,
    origin: int | None,
) -> PublishedPatch:
    base = await base_of(session, org, patch)
    tables = await tables_of(session, org, patch)
    warnings = await asyncio.to_thread(check_effective, base.contract, patch, tables=tables)
    for _ in range(COUNTED_TRIES):
        numbers = await read_numbers(session, org, graph_name(patch.contract))
        numbered = msgspec.structs.replace(patch, version=numbers.last + 1)
        compiled = await asyncio.to_thread(compile_effective, base.contract, numbered, tables=tables)
        pinned = {"envelope": base.version, "hash": base.hash, "org": base.org}
        row = _row(org, base.contract, numbered, pinned, by)
        graph = graph_row(org, compiled, pinned | {"patch": numbered.version}, by, is_default=False)
        event = event_of(org, patch.contract, action, by, reason, version=numbered.version, origin=origin)
        if await store(row, graph, event):
            return PublishedPatch(patch.contract, numbered.version, base.version, row.hash, compiled.hash, warnings)
    raise Conflict(
        f"Others publish patches for {patch.contract!r} all the time.",
        code="PUBLISHING_RACED",
        hint="Try again.",
    )


def _row(org: str, contract: ContractDefinition, patch: PatchDefinition, base: dict[str, Any], by: str) -> NewPatch:
    data = patch_data(patch)
    return NewPatch(
        id=new_id(org, None, None),
        org=org,
        name=graph_name(contract.type),
        version=patch.version,
        type=contract.type,
        source=canonical(data),
        patches=canonical(data.get("slots", {})),
        base=canonical(base),
        hash=patch_hash(patch),
        compiler_version=COMPILER_VERSION,
        created_by=by,
    )


async def _seen(session: Session, org: str, type: str, etag: str | None) -> drafts.Draft:
    """Read the draft that is to be published; one that is gone or was saved again is a conflict."""
    try:
        draft = await drafts.read(session, org, type)
    except NotFound as missing:
        if etag is not None:
            raise drafts.changed(type) from None
        raise Conflict(
            missing.message, code="DRAFT_GONE", hint="Somebody may have published or dropped it just now: save another."
        ) from None
    if etag is not None and draft.etag != etag:
        raise drafts.changed(type)
    return draft


def _document(found: contracts.StoredPatch) -> PatchDocument:
    return PatchDocument(**msgspec.structs.asdict(found.version), patch=require_patch(found.source))
