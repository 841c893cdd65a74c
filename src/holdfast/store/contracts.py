"""Contracts, patches and their drafts as they lie in the database, read as the tenant, behind row-level security."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.core.model.timestamps import to_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.wire import read_int

NEWEST: Final = 2**31 - 1  # before the first page of versions
LAST: Final = 2**63 - 1  # before the first page of events
_WORKER: Final = SQL.use_worker.one()


class ContractVersion(msgspec.Struct, frozen=True):
    """One published version of a contract. `org` is `_system` for one that every organisation has."""

    org: str
    type: str
    version: int
    hash: str  # of its envelope
    compiler_version: str
    created_by: str | None
    published_at: datetime


class StoredContract(NamedTuple):
    version: ContractVersion
    source: Any


class PatchVersion(msgspec.Struct, frozen=True):
    """One published version of an organisation's patch. The newest that is not archived is in force."""

    type: str
    version: int
    status: str  # published | archived
    envelope: int  # the version of the contract it was made for
    hash: str
    created_by: str | None
    published_at: datetime


class StoredPatch(NamedTuple):
    version: PatchVersion
    source: Any


class StoredEffective(msgspec.Struct, frozen=True):
    """A graph that documents run by, as it lies in the database."""

    org: str
    type: str
    version: int
    status: str
    is_default: bool  # compiled of the envelope alone
    base: dict[str, Any]
    created_by: str | None
    published_at: datetime
    hash: str
    compiled: bytes


class StoredDraft(NamedTuple):
    type: str
    tag: str
    patch: Any
    saved_by: str
    saved_at: datetime
    reason: str | None


class ContractEvent(msgspec.Struct, frozen=True):
    """A change of the contract or the patch of a type: its actor and the reason."""

    id: int  # rises with every line
    type: str
    action: str
    version: int | None  # of the contract or the patch
    origin: int | None  # the version of the patch that was restored or rebased
    by: str
    reason: str | None
    at: datetime


class Numbers(NamedTuple):
    """The numbers that the graphs of a type have in one organisation."""

    last: int
    in_force: int | None  # the patch
    default_of: int | None  # the newest contract whose bare envelope has a graph


async def read_contract(session: Session, org: str, name: str, version: int | None) -> StoredContract | None:
    found = await _read(session, org, SQL.read_contract.one(org, name, version))
    return StoredContract(_contract(found[0][:7]), _json(found[0][7])) if found else None


async def page_contracts(session: Session, org: str, after: str, limit: int) -> list[ContractVersion]:
    return [_contract(row) for row in await _read(session, org, SQL.page_contracts.one(org, after, limit))]


async def page_contract_versions(
    session: Session, org: str, name: str, before: int, limit: int
) -> list[ContractVersion]:
    query = SQL.page_contract_versions.one(org, name, before, limit)
    return [_contract(row) for row in await _read(session, org, query)]


async def read_numbers(session: Session, org: str, name: str) -> Numbers:
    [(last, in_force, default_of)] = await _read(session, org, SQL.read_numbers.one(org, name))
    return Numbers(read_int(last), _number(in_force), _number(default_of))


async def page_patches(session: Session, org: str, name: str, before: int, limit: int) -> list[PatchVersion]:
    return [_patch(row) for row in await _read(session, org, SQL.page_patches.one(org, name, before, limit))]


async def read_patch(session: Session, org: str, name: str, version: int | None) -> StoredPatch | None:
    found = await _read(session, org, SQL.read_patch.one(org, name, version))
    return StoredPatch(_patch(found[0][:7]), _json(found[0][7])) if found else None


async def list_patched_orgs(session: Session, name: str) -> list[str]:
    """List the organisations with a patch of a type in force; for operators, whose role sees all of them."""
    results = await session.once(_WORKER, SQL.list_patched_orgs.one(name))
    return [org.decode() for (org,) in rows(results[1])]


async def read_effective(session: Session, org: str, name: str, version: int | None) -> StoredEffective | None:
    found = await _read(session, org, SQL.read_effective.one(org, name, version))
    if not found:
        return None
    whose, type, number, status, is_default, base, by, published, digest, compiled = found[0]
    return StoredEffective(
        org=whose.decode(),
        type=type.decode(),
        version=read_int(number),
        status=status.decode(),
        is_default=is_default == b"\1",
        base=_json(base) or {},
        created_by=_text(by),
        published_at=to_datetime(read_int(published)),
        hash=digest.decode(),
        compiled=compiled[1:],
    )


async def read_draft(session: Session, org: str, type: str) -> StoredDraft | None:
    found = await _read(session, org, SQL.read_draft.one(org, type))
    if not found:
        return None
    named, tag, patch, by, at, reason = found[0]
    return StoredDraft(
        named.decode(), tag.decode(), _json(patch), by.decode(), to_datetime(read_int(at)), _text(reason)
    )


async def page_contract_events(session: Session, org: str, type: str, before: int, limit: int) -> list[ContractEvent]:
    found = await _read(session, org, SQL.page_contract_events.one(org, type, before, limit))
    return [
        ContractEvent(
            id=read_int(id),
            type=named.decode(),
            action=action.decode(),
            version=_number(version),
            origin=_number(origin),
            by=actor.decode(),
            reason=_text(reason),
            at=to_datetime(read_int(at)),
        )
        for id, named, action, version, origin, actor, reason, at in found
    ]


async def _read(session: Session, org: str, query: Query) -> list[list[Any]]:
    results = await session.once(SQL.use_tenant.one(org), query)
    return rows(results[1])


def _contract(row: list[Any]) -> ContractVersion:
    org, type, version, digest, compiler, by, published = row
    return ContractVersion(
        org=org.decode(),
        type=type.decode(),
        version=read_int(version),
        hash=digest.decode(),
        compiler_version=compiler.decode(),
        created_by=_text(by),
        published_at=to_datetime(read_int(published)),
    )


def _patch(row: list[Any]) -> PatchVersion:
    type, version, status, envelope, digest, by, published = row
    return PatchVersion(
        type=type.decode(),
        version=read_int(version),
        status=status.decode(),
        envelope=read_int(envelope),
        hash=digest.decode(),
        created_by=_text(by),
        published_at=to_datetime(read_int(published)),
    )


def _json(value: bytes | None) -> Any:
    return None if value is None else msgspec.json.decode(value[1:])


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _number(value: bytes | None) -> int | None:
    return None if value is None else read_int(value)
