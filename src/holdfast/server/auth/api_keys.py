"""API keys as credentials of a request."""

from __future__ import annotations

from holdfast.server.access.identity import API_KEY, Identity
from holdfast.server.auth.keyring import Keyring
from holdfast.server.auth.refusals import unfit


class ApiKeyAuthenticator:
    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    def needs_lookup(self, text: str) -> bool:
        return self._keyring.needs_lookup(text)

    async def authenticate(self, text: str) -> Identity:
        key = await self._keyring.recognise(text)
        if key is None:
            raise unfit(
                "The API key is not valid.",
                code="API_KEY_INVALID",
                hint="It may be mistyped, revoked or expired; `holdfast keys list` shows those that work.",
            )
        return Identity(
            tenant=key.org,
            subject=key.subject,
            partition=key.partition,
            roles=key.roles,
            capabilities=frozenset(key.capabilities),
            scopes=frozenset(key.scopes),
            method=API_KEY,
        )
