"""Graphs of a type of documents: compare two of them, send a document through one."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import Query, Request
from starlette.responses import Response

from holdfast.runtime.envelopes.sides import DRAFT
from holdfast.server.access.scopes import Scope, needs
from holdfast.server.access.tenants import TenantEngine
from holdfast.server.http.contract import api_router
from holdfast.server.http.gate import check_accept
from holdfast.server.http.replies import reply
from holdfast.server.models.base import Version
from holdfast.server.models.differences import ContractDifferenceView, DraftWord, EnvelopeWord
from holdfast.server.models.document_simulations import DocumentSimulationView, SimulateDocument
from holdfast.server.routes.contracts.contracts import ContractType
from holdfast.server.simulations import encoded_document
from holdfast.views.difference_text import difference_text
from holdfast.views.difference_words import names_of
from holdfast.views.page import POLICY

router = api_router("contracts")

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_HTML: Final = "text/html"
_FORMS: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {media: {"schema": {"type": "string"}} for media in (_TEXT, _HTML)}}
}


@router.get(
    "/{type}/diff",
    operation_id="diff_contract",
    response_model=ContractDifferenceView,
    responses=_FORMS,
    dependencies=[needs(Scope.READ)],
    openapi_extra={"x-produces": [_TEXT, _HTML]},
)
async def diff_contract(
    type: ContractType,
    request: Request,
    engine: TenantEngine,
    before: Annotated[
        Version | EnvelopeWord, Query(alias="from", description="The contract alone, or a version of the patch.")
    ],
    after: Annotated[Version | DraftWord, Query(alias="to", description="A version of the patch, or its draft.")],
) -> Any:
    """The changes from one graph to another: as data, as text, or as a page of HTML with drawings of both."""
    media = check_accept(request.headers, _JSON, _TEXT, _HTML)
    headers = {"Vary": "Accept"}
    if media == _HTML:
        page = await engine.contract_difference_page(type, before, after)
        headers |= {"Content-Security-Policy": f"{POLICY}; sandbox", "X-Content-Type-Options": "nosniff"}
        return Response(page, media_type=media, headers=headers)
    found = await engine.contract_difference(type, before, after)
    if media == _TEXT:
        return Response(
            difference_text(found, names_of(found, is_draft=after == DRAFT)), media_type=media, headers=headers
        )
    return reply(found, headers=headers)


@router.post(
    "/{type}/simulate",
    operation_id="simulate_document",
    response_model=DocumentSimulationView,
    dependencies=[needs(Scope.READ)],
)
async def simulate_document(type: ContractType, wish: SimulateDocument, engine: TenantEngine) -> Any:
    """Send a document that exists only in this answer through a graph. Nothing is stored, no effect is delivered."""
    done = await engine.simulate_document(
        type,
        wish.document,
        wish.inputs,
        version=wish.version,
        now=wish.now,
        settings=wish.settings,
        outputs=wish.outputs,
        failing=wish.failing,
    )
    return Response(await asyncio.to_thread(encoded_document, done), media_type=_JSON)
