"""Who a request comes from, and the dependency every route asks for it.

`app.state.authenticator` is called once per request; what it answers is kept on `request.state.identity`, where logs
and limits find it as well. A request that nobody vouches for never reaches a route: it ends as `Unauthenticated`.
"""

from __future__ import annotations

from typing import Annotated, Protocol

import msgspec
from fastapi import Depends, Request

from holdfast.server.auth.refusals import missing

JWT = "jwt"
API_KEY = "api_key"
DEVELOPMENT = "development"


class Identity(msgspec.Struct, frozen=True):
    """Who a request comes from, as authenticated; nothing in it was taken on the caller's word."""

    tenant: str
    subject: str
    partition: str = ""
    roles: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    method: str = ""  # jwt | api_key | development


class Authenticator(Protocol):
    """Answers who is calling, or raises `Unauthenticated`."""

    async def __call__(self, request: Request) -> Identity: ...


async def current_identity(request: Request) -> Identity:
    known = getattr(request.state, "identity", None)
    if isinstance(known, Identity):
        return known
    authenticate: Authenticator | None = request.app.state.authenticator
    if authenticate is None:  # nobody is asked, so nobody is believed
        raise missing()
    identity = await authenticate(request)
    request.state.identity = identity
    return identity


CurrentIdentity = Annotated[Identity, Depends(current_identity)]
