"""Chain of authenticators: the credentials of a request select one, and no other is tried after it.

A request has one proof or none. A request with a wrong proof is refused: it never falls back to a weaker one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from starlette.requests import Request

from holdfast.errors import Unauthenticated
from holdfast.server.access.identity import Identity
from holdfast.server.auth.api_keys import ApiKeyAuthenticator
from holdfast.server.auth.capabilities import FromClaims, Resolver, RoleMap
from holdfast.server.auth.development import Development
from holdfast.server.auth.jwt import JwtAuthenticator
from holdfast.server.auth.keyring import Keyring, is_key
from holdfast.server.auth.refusals import ambiguous, missing, unfit
from holdfast.server.auth.settings import AuthSettings
from holdfast.store.pg.reconnecting import StandingSession

API_KEY_HEADER = "x-api-key"


class TextAuthenticator(Protocol):
    """Believes, or refuses, the text of some credentials."""

    async def authenticate(self, text: str) -> Identity: ...


class KeyAuthenticator(TextAuthenticator, Protocol):
    def needs_lookup(self, text: str) -> bool: ...


class Chain:
    """Authenticator of the server; a part that is None is switched off."""

    def __init__(
        self,
        *,
        jwt: TextAuthenticator | None = None,
        api_keys: KeyAuthenticator | None = None,
        development: Development | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._jwt = jwt
        self._api_keys = api_keys
        self._development = development
        self._resolver = resolver or FromClaims()

    async def __call__(self, request: Request) -> Identity:
        identity = await self._identify(request)
        return msgspec.structs.replace(identity, capabilities=await self._resolver.resolve(identity))

    def needs_lookup(self, request: Request) -> bool:
        """Check whether the request carries a key that was not found good before."""
        try:
            text = credentials(request)
        except Unauthenticated:
            return False
        return text is not None and is_key(text) and self._api_keys is not None and self._api_keys.needs_lookup(text)

    async def _identify(self, request: Request) -> Identity:
        text = credentials(request)
        if text is None:
            if self._development is None:
                raise missing()
            return await self._development.authenticate(request)
        chosen = self._api_keys if is_key(text) else self._jwt
        if chosen is None:
            raise unfit("Credentials of this kind are not accepted here.", code="CREDENTIALS_UNSUPPORTED")
        return await chosen.authenticate(text)


def credentials(request: Request) -> str | None:
    """The token or key of a request; None without any."""
    written, keys = request.headers.getlist("authorization"), request.headers.getlist(API_KEY_HEADER)
    if len(written) + len(keys) > 1:
        raise ambiguous()
    if keys:
        if not is_key(keys[0]):
            raise unfit("The API key is not valid.", code="API_KEY_INVALID")
        return keys[0]
    if not written:
        return None
    scheme, _, text = written[0].partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise unfit("The Authorization header is not of the form `Bearer …`.", code="CREDENTIALS_UNSUPPORTED")
    return text.strip()


@asynccontextmanager
async def open_chain(settings: AuthSettings, dsn: str, *, listen_host: str, org: str) -> AsyncGenerator[Chain]:
    """All that the settings switch on, with a connection of its own for the keys."""
    development = Development(listen_host, tenant=org) if settings.development else None
    jwt = JwtAuthenticator(*settings.jwt) if settings.jwt else None
    resolver = settings.resolver or RoleMap(settings.roles)
    if development is not None:
        development.announce()
    if not settings.api_keys:
        yield Chain(jwt=jwt, development=development, resolver=resolver)
        return
    session = await StandingSession.open(dsn)
    try:
        keys = ApiKeyAuthenticator(Keyring(session))
        yield Chain(jwt=jwt, api_keys=keys, development=development, resolver=resolver)
    finally:
        await session.close()
