"""Key set of an issuer, fetched from its address and cached.

It is fetched again when it is old, and when a token names a key that is not in it; the latter at most once a minute, or
strangers could make us call the issuer as often as they like. When an issuer does not answer, the last key set stays in
use for a day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import httpx2
import msgspec
from jwt import PyJWK

from holdfast.errors import Unavailable
from holdfast.logs import logger
from holdfast.server.auth.key_set import KeySet
from holdfast.version import __version__

log = logger("holdfast.auth")

FRESH: Final = 600.0  # seconds until the document is fetched again
STALE: Final = 86_400.0  # seconds for which old keys still count while the issuer does not answer
BETWEEN: Final = 60.0  # seconds between two fetches that tokens ask for
BETWEEN_FAILURES: Final = 5.0  # seconds between fetches from an issuer that has never answered
TIMEOUT: Final = 5.0
MOST_BYTES: Final = 512 * 1024


class Jwks:
    def __init__(self, url: str, algorithms: tuple[str, ...], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._algorithms = algorithms
        self._clock = clock
        self._lock = asyncio.Lock()
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None

    async def find(self, kid: str | None, algorithm: str) -> list[PyJWK]:
        keys = await self._known()
        found = keys.find(kid, algorithm)
        if not found and self._may_try(BETWEEN):
            found = (await self._again(BETWEEN)).find(kid, algorithm)
        return found

    async def _known(self) -> KeySet:
        if self._keys is not None and self._age < FRESH:
            return self._keys
        return await self._again(BETWEEN if self._keys is not None else BETWEEN_FAILURES)

    async def _again(self, pause: float) -> KeySet:
        """Fetch again, or wait for the fetch under way."""
        async with self._lock:
            if self._may_try(pause):
                self._tried_at = self._clock()
                await self._refresh()
            if self._keys is None or self._age > STALE:
                raise Unavailable(
                    "The keys of the issuer of this token cannot be fetched.",
                    code="JWKS_UNAVAILABLE",
                    hint="Try again in a few seconds; the log of the server says why.",
                )
            return self._keys

    async def _refresh(self) -> None:
        try:
            document = await self._fetch()
            keys = KeySet(document, self._algorithms)
            if not keys.size:
                raise ValueError("it holds no key that could be used")
        except (httpx2.HTTPError, msgspec.DecodeError, ValueError, TimeoutError, RecursionError) as failure:
            log.warning("The keys at %s were not fetched: %s: %s", self._url, type(failure).__name__, failure)
            return
        self._keys, self._fetched_at = keys, self._clock()

    async def _fetch(self) -> Any:
        headers = {"accept": "application/json", "user-agent": f"holdfast/{__version__}"}
        async with (
            asyncio.timeout(TIMEOUT),
            httpx2.AsyncClient(trust_env=False, follow_redirects=False, timeout=TIMEOUT, headers=headers) as client,
            client.stream("GET", self._url) as response,
        ):
            if response.status_code != 200:
                raise ValueError(f"the answer has the status {response.status_code}")
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MOST_BYTES:
                    raise ValueError(f"the document has more than {MOST_BYTES} bytes")
        return msgspec.json.decode(body)

    def _may_try(self, pause: float) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= pause

    @property
    def _age(self) -> float:
        return self._clock() - self._fetched_at


class FixedKeys:
    """Keys that were given with the settings."""

    def __init__(self, keys: KeySet) -> None:
        self._keys = keys

    async def find(self, kid: str | None, algorithm: str) -> list[PyJWK]:
        return self._keys.find(kid, algorithm)
