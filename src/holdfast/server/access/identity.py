"""Identity behind a request, and the dependency by which every route gets it.

`app.state.authenticator` is called once per request; its answer is kept on `request.state.identity`, where logs and
limits find it as well. An unauthenticated request never reaches a route: it ends as `Unauthenticated`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Protocol

import msgspec
from fastapi import Depends, Request

from holdfast.server.auth.refusals import missing

JWT = "jwt"
API_KEY = "api_key"
DEVELOPMENT = "development"


class Identity(msgspec.Struct, frozen=True):
    """Authenticated source of a request; no part of it rests on the caller's word."""

    tenant: str
    subject: str
    partition: str = ""
    roles: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    method: str = ""  # jwt | api_key | development


class Authenticator(Protocol):
    """Function from a request to its identity; raises `Unauthenticated`.

    With a method `needs_lookup(request)`, requests it is true for are counted by address before they are looked up.
    """

    async def __call__(self, request: Request) -> Identity: ...


def needs_lookup(request: Request) -> bool:
    asks: Callable[[Request], bool] | None = getattr(request.app.state.authenticator, "needs_lookup", None)
    return asks is not None and asks(request)


async def current_identity(request: Request) -> Identity:
    known = getattr(request.state, "identity", None)
    if isinstance(known, Identity):
        return known
    authenticate: Authenticator | None = request.app.state.authenticator
    if authenticate is None:  # without an authenticator, no request is believed
        raise missing()
    identity = await authenticate(request)
    request.state.identity = identity
    return identity


CurrentIdentity = Annotated[Identity, Depends(current_identity)]
