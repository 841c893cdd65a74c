"""The description of the API as a document: made once, kept as it is sent, plain and compressed."""

from __future__ import annotations

import asyncio
import gzip
import re
from hashlib import blake2b
from typing import Any, Final

import msgspec
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from holdfast.server.http.etags import is_known
from holdfast.server.http.gate import check_accept, count_address
from holdfast.server.http.queries import StrictRoute
from holdfast.server.http.replies import encoded

MOST_KEPT: Final = 16  # one for each path the application is mounted below
_JSON: Final = "application/json"
_NEVER: Final = re.compile(r"q\s*=\s*0(\.0*)?")

router = APIRouter(route_class=StrictRoute, include_in_schema=False)


@router.get("/openapi.json")
async def description(request: Request) -> Response:
    """The OpenAPI document. It needs no credentials, so callers are counted by their address."""
    count_address(request, "description")
    check_accept(request.headers, _JSON)
    kept: Descriptions = request.app.state.descriptions
    found = await kept.below(request.scope.get("root_path", "").rstrip("/"))
    headers = {"ETag": f"W/{found.tag}", "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if is_known(request, found.tag):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request):
        return Response(found.compressed, headers={**headers, "Content-Encoding": "gzip"}, media_type=_JSON)
    return Response(found.plain, headers=headers, media_type=_JSON)


def _takes_gzip(request: Request) -> bool:
    wishes = [wish for line in request.headers.getlist("accept-encoding") for wish in line.lower().split(",")]
    parts = [[part.strip() for part in wish.split(";")] for wish in wishes]
    return any(name == "gzip" and not any(map(_NEVER.fullmatch, options)) for name, *options in parts)


class Description(msgspec.Struct, frozen=True):
    plain: bytes
    compressed: bytes
    tag: str


class Descriptions:
    """Documents by mount path; made in a thread, by one caller at a time."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._turn = asyncio.Lock()
        self._made: dict[str, Description] = {}

    async def below(self, root: str) -> Description:
        if root not in self._made:
            async with self._turn:
                if root not in self._made:
                    if len(self._made) >= MOST_KEPT:
                        self._made.clear()
                    self._made[root] = await asyncio.to_thread(_make, self._app, root)
        return self._made[root]


def _make(app: FastAPI, root: str) -> Description:
    document: dict[str, Any] = app.openapi()
    if root:
        document = {**document, "servers": [{"url": root}, *document.get("servers", ())]}
    plain = encoded(document)
    return Description(plain, gzip.compress(plain, mtime=0), f'"{blake2b(plain, digest_size=8).hexdigest()}"')
