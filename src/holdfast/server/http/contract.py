"""Contract of all routes of `/api/v1`, beside each route's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header

from holdfast.errors import Conflict
from holdfast.server.http.etags import as_precondition
from holdfast.server.http.gate import GatedRoute
from holdfast.server.http.problems import documented

PREFIX: Final = "/api/v1"
ALWAYS: Final = (400, 401, 403, 404, 406, 413, 414, 415, 422, 429, 431, 500, 503)
CHANGES: Final = documented(409)
VERSIONED: Final = documented(409, 412, 428)


def api_router(noun: str) -> APIRouter:
    return APIRouter(
        prefix=f"{PREFIX}/{noun}", tags=[noun.replace("-", " ")], route_class=GatedRoute, responses=documented(*ALWAYS)
    )


async def _if_match(
    if_match: Annotated[
        str | None, Header(max_length=200, description="Change only this version: the ETag of an earlier answer.")
    ] = None,
) -> None: ...


async def _if_none_match(
    if_none_match: Annotated[
        str | None, Header(max_length=200, description="Answer only if the ETag is another one by now.")
    ] = None,
) -> None: ...


# For the `dependencies` of routes that read these headers: they are described, and refused when they are too long.
IF_MATCH: Final = Depends(_if_match)
IF_NONE_MATCH: Final = Depends(_if_none_match)


@contextmanager
def if_version_matches(expected: int | None) -> Generator[None]:
    """Convert a conflict of versions to 412 if the caller named the version in If-Match."""
    try:
        yield
    except Conflict as refusal:
        told = as_precondition(refusal, expected)
        if told is refusal:
            raise
        raise told from None
