"""Contracts of documents: publish them, fill their slots with patches, move patches to another version."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from holdfast.doors.envelope.written import contract_data, patch_data
from holdfast.errors import Conflict, Refused
from holdfast.graph.compiled import graph_of
from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.graph.model import dump_graph
from holdfast.runtime.envelopes.drafts import Draft
from holdfast.server.access.identity import CurrentIdentity
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import CHANGES, IF_MATCH, api_router
from holdfast.server.http.pages import USUAL_ITEMS, Cursor, Limit, Listing, shown_of
from holdfast.server.http.problems import documented
from holdfast.server.http.refusals import PreconditionFailed
from holdfast.server.models.base import Listed, Version
from holdfast.server.models.contracts import (
    Because,
    CheckPatch,
    ContractEventView,
    ContractVersionView,
    ContractView,
    DraftView,
    EffectiveView,
    GraphView,
    PatchCheck,
    PatchFinding,
    PatchVersionView,
    PatchView,
    PublishContract,
    PublishedContractView,
    PublishedPatchView,
    Rebase,
    RebaseAnswer,
    RebaseView,
    SaveDraft,
    Type,
)

router = api_router("contracts")

_TAGGED: Final = documented(409, 412)
ContractType = Annotated[Type, Path(description="The type of documents.", examples=["invoice"])]
Number = Annotated[Version, Path(description="One of its versions.")]
WantedVersion = Annotated[Version | None, Query(description="Of the patch; else what is in force.")]


# --- contracts -----------------------------------------------------------------------------------------------------


@router.post("", operation_id="publish_contract", responses=CHANGES, dependencies=[needs(Scope.PUBLISH)])
async def publish_contract(
    wish: PublishContract, engine: TenantEngine, identity: CurrentIdentity
) -> PublishedContractView:
    """Publish a contract, or list everything that is wrong with it. The same content again changes nothing."""
    done = await engine.publish_contract(wish.contract, by=identity.subject, reason=wish.reason)
    return PublishedContractView.of(done)


@router.get("", operation_id="list_contracts", dependencies=[needs(Scope.READ)])
async def list_contracts(
    engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[ContractVersionView]:
    """The newest version of every contract, by type."""
    listing = Listing(engine.org, "contracts")
    found = await engine.contracts(after=listing.position(cursor), limit=limit + 1)
    page, last = shown_of(found, limit)
    return Listed(items=[ContractVersionView.of(one) for one in page], next=listing.cursor(last and last.type))


@router.get("/{type}", operation_id="get_newest_contract", dependencies=[needs(Scope.READ)])
async def get_newest_contract(type: ContractType, engine: TenantEngine) -> ContractView:
    """The newest version of a contract, as it was written."""
    return await _contract(engine, type, None)


@router.get("/{type}/versions", operation_id="list_contract_versions", dependencies=[needs(Scope.READ)])
async def list_contract_versions(
    type: ContractType, engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[ContractVersionView]:
    """All versions of a contract, newest first."""
    listing = Listing(engine.org, "contract versions", type=type)
    before = listing.place(cursor, int)
    found = await engine.contract_versions(type, before=before, limit=limit + 1)
    await _require_known(engine, type, found)
    page, last = shown_of(found, limit)
    items = [ContractVersionView.of(one) for one in page]
    return Listed(items=items, next=listing.cursor_behind(last and last.version))


@router.get("/{type}/versions/{version}", operation_id="get_contract", dependencies=[needs(Scope.READ)])
async def get_contract(type: ContractType, version: Number, engine: TenantEngine) -> ContractView:
    """One version of a contract, as it was written."""
    return await _contract(engine, type, version)


@router.get(
    "/{type}/versions/{version}/envelope", operation_id="get_contract_envelope", dependencies=[needs(Scope.READ)]
)
async def get_contract_envelope(type: ContractType, version: Number, engine: TenantEngine) -> GraphView:
    """The graph that every graph of the type contains."""
    found = await engine.contract(type, version)
    return GraphView(type=found.type, version=found.version, hash=found.hash, graph=dump_graph(found.envelope))


@router.get(
    "/{type}/versions/{version}/mermaid",
    operation_id="get_contract_mermaid",
    response_class=PlainTextResponse,
    dependencies=[needs(Scope.READ)],
)
async def get_contract_mermaid(type: ContractType, version: Number, engine: TenantEngine) -> str:
    """A drawing of the envelope, as Mermaid text."""
    return to_mermaid((await engine.contract(type, version)).envelope)


@router.get("/{type}/graph", operation_id="get_effective_graph", dependencies=[needs(Scope.READ)])
async def get_effective_graph(type: ContractType, engine: TenantEngine, version: WantedVersion = None) -> EffectiveView:
    """The graph that documents of this type run by."""
    found = await engine.effective(type, version)
    return EffectiveView(
        type=found.type,
        version=found.version,
        hash=found.hash,
        graph=dump_graph(graph_of(found.graph)),
        org=found.org,
        status="archived" if found.status == "archived" else "published",
        is_default=found.is_default,
        envelope=found.envelope,
    )


@router.get(
    "/{type}/mermaid",
    operation_id="get_effective_mermaid",
    response_class=PlainTextResponse,
    dependencies=[needs(Scope.READ)],
)
async def get_effective_mermaid(type: ContractType, engine: TenantEngine, version: WantedVersion = None) -> str:
    """A drawing of the graph that documents of this type run by, as Mermaid text."""
    return to_mermaid(graph_of((await engine.effective(type, version)).graph))


@router.get("/{type}/events", operation_id="list_contract_events", dependencies=[needs(Scope.READ)])
async def list_contract_events(
    type: ContractType, engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[ContractEventView]:
    """What was done with contract, draft and patch of a type, by whom and why; the last first."""
    listing = Listing(engine.org, "contract events", type=type)
    found = await engine.contract_events(type, before=listing.place(cursor, int), limit=limit + 1)
    await _require_known(engine, type, found)
    page, last = shown_of(found, limit)
    return Listed(items=[ContractEventView.of(one) for one in page], next=listing.cursor_behind(last and last.id))


# --- the draft -----------------------------------------------------------------------------------------------------


@router.put(
    "/{type}/draft", operation_id="save_patch_draft", responses=_TAGGED, dependencies=[needs(Scope.PUBLISH), IF_MATCH]
)
async def save_patch_draft(
    type: ContractType,
    wish: SaveDraft,
    request: Request,
    response: Response,
    engine: TenantEngine,
    identity: CurrentIdentity,
) -> DraftView:
    """Save the draft of a patch; there is one per type. With If-Match only over the draft that was read."""
    _require_same(type, wish.patch)
    tag = _tag(request)
    try:
        draft = await engine.save_patch_draft(wish.patch, by=identity.subject, reason=wish.reason, etag=tag)
    except Conflict as refusal:
        raise _told(refusal, tag) from None
    return _draft(draft, response)


@router.get("/{type}/draft", operation_id="get_patch_draft", dependencies=[needs(Scope.READ)])
async def get_patch_draft(type: ContractType, response: Response, engine: TenantEngine) -> DraftView:
    """The draft for a type, with its ETag."""
    return _draft(await engine.patch_draft(type), response)


@router.delete(
    "/{type}/draft",
    operation_id="drop_patch_draft",
    status_code=204,
    responses=_TAGGED,
    dependencies=[needs(Scope.PUBLISH), IF_MATCH],
)
async def drop_patch_draft(
    type: ContractType, request: Request, engine: TenantEngine, identity: CurrentIdentity
) -> None:
    """Drop the draft for a type; with If-Match only the one that was read."""
    tag = _tag(request)
    try:
        await engine.drop_patch_draft(type, by=identity.subject, etag=tag)
    except Conflict as refusal:
        raise _told(refusal, tag) from None


@router.post("/{type}/draft/check", operation_id="check_patch", dependencies=[needs(Scope.READ)])
async def check_patch(type: ContractType, wish: CheckPatch, engine: TenantEngine) -> PatchCheck:
    """Everything that is wrong with a patch, or with the draft for a type. Nothing is stored."""
    if wish.patch is not None:
        _require_same(type, wish.patch)
    found = await engine.check_patch(type if wish.patch is None else wish.patch)
    return PatchCheck(findings=[PatchFinding.of(one) for one in found])


@router.post(
    "/{type}/draft/publish",
    operation_id="publish_patch",
    responses=_TAGGED,
    dependencies=[needs(Scope.PUBLISH), IF_MATCH],
)
async def publish_patch(
    type: ContractType, request: Request, wish: Because, engine: TenantEngine, identity: CurrentIdentity
) -> PublishedPatchView:
    """Compile the draft and put it in force; the draft is gone then. With If-Match only the one that was read."""
    tag = _tag(request)
    try:
        done = await engine.publish_patch(type, by=identity.subject, reason=wish.reason, etag=tag)
    except Conflict as refusal:
        raise _told(refusal, tag) from None
    return PublishedPatchView.of(done)


# --- patches -------------------------------------------------------------------------------------------------------


@router.get("/{type}/patches", operation_id="list_patches", dependencies=[needs(Scope.READ)])
async def list_patches(
    type: ContractType, engine: TenantEngine, cursor: Cursor = None, limit: Limit = USUAL_ITEMS
) -> Listed[PatchVersionView]:
    """The tenant's patches for a type, newest first."""
    listing = Listing(engine.org, "patches", type=type)
    found = await engine.patches(type, before=listing.place(cursor, int), limit=limit + 1)
    await _require_known(engine, type, found)
    page, last = shown_of(found, limit)
    items = [PatchVersionView.of(one) for one in page]
    return Listed(items=items, next=listing.cursor_behind(last and last.version))


@router.get("/{type}/patches/{version}", operation_id="get_patch", dependencies=[needs(Scope.READ)])
async def get_patch(type: ContractType, version: Number, engine: TenantEngine) -> PatchView:
    """One version of the tenant's patch, as it was written."""
    found = await engine.patch(type, version)
    return PatchView(**_facts(found, PatchVersionView), patch=patch_data(found.patch))


@router.post(
    "/{type}/patches/{version}/restore",
    operation_id="restore_patch",
    responses=CHANGES,
    dependencies=[needs(Scope.PUBLISH)],
)
async def restore_patch(
    type: ContractType, version: Number, wish: Because, engine: TenantEngine, identity: CurrentIdentity
) -> PublishedPatchView:
    """Publish an old version of the patch again, as a new one."""
    return PublishedPatchView.of(await engine.restore_patch(type, version, by=identity.subject, reason=wish.reason))


@router.post(
    "/{type}/patches/{version}/archive",
    operation_id="archive_patch",
    responses=CHANGES,
    dependencies=[needs(Scope.PUBLISH)],
)
async def archive_patch(
    type: ContractType, version: Number, wish: Because, engine: TenantEngine, identity: CurrentIdentity
) -> PatchVersionView:
    """Take a version of the patch out of force; the newest one that is left follows it."""
    await engine.archive_patch(type, version, by=identity.subject, reason=wish.reason)
    return PatchVersionView(**_facts(await engine.patch(type, version), PatchVersionView))


@router.post("/{type}/rebase", operation_id="rebase_patch", responses=CHANGES, dependencies=[needs(Scope.PUBLISH)])
async def rebase_patch(
    type: ContractType, wish: Rebase, engine: TenantEngine, identity: CurrentIdentity
) -> RebaseAnswer:
    """Bring the tenant's patch to a version of the contract, or tell why it does not fit; then it stays as it is."""
    told = await engine.rebase(type, wish.to_version, by=identity.subject, reason=wish.reason, dry_run=wish.dry_run)
    return RebaseAnswer(patches=[RebaseView.of(one) for one in told])


async def _require_known(engine: TenantEngine, type: str, found: list[Any]) -> None:
    """Refuse an empty list of a type that there is no contract for."""
    if not found:
        await engine.contract(type)


def _require_same(type: str, patch: dict[str, Any]) -> None:
    if patch.get("contract") != type:
        raise Refused("Path and patch name two types.", code="CONTRACT_AMBIGUOUS", hint="Name the same type in both.")


async def _contract(engine: TenantEngine, type: str, version: int | None) -> ContractView:
    found = await engine.contract(type, version)
    return ContractView(**_facts(found, ContractVersionView), contract=contract_data(found.contract))


def _facts(found: object, view: type[ContractVersionView] | type[PatchVersionView]) -> dict[str, Any]:
    return {name: getattr(found, name) for name in view.model_fields}


def _draft(draft: Draft, response: Response) -> DraftView:
    response.headers["ETag"] = f'"{draft.etag}"'
    return DraftView(
        type=draft.type, etag=draft.etag, patch=patch_data(draft.patch), by=draft.by, at=draft.at, reason=draft.reason
    )


def _tag(request: Request) -> str | None:
    """The tag that If-Match asks for; None: any."""
    given = request.headers.get("if-match", "").strip()
    return None if given in ("", "*") else given.strip('"') or "none"


def _told(refusal: Conflict, tag: str | None) -> Conflict | PreconditionFailed:
    if tag is None or refusal.code != "DRAFT_CHANGED":
        return refusal
    return PreconditionFailed(refusal.message, code=refusal.code, hint=refusal.hint)
