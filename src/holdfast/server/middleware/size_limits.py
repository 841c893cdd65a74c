"""Size limits of requests: a declared size is refused at once, an undeclared one is counted.

Most clients read an answer only after they have sent all of the body, and lose it when the connection closes before.
So a little of the excess is read and thrown away first: bounded in bytes and in time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.errors import HoldfastError
from holdfast.server.http.problems import problem
from holdfast.server.http.refusals import AmbiguousLength, BodyTooLarge, HeadersTooLarge, Invalid, TargetTooLong
from holdfast.server.settings import ServerSettings

MOST_DISCARDED: Final = 16 * 1024 * 1024
DISCARD_SECONDS: Final = 10.0


class SizeLimits:
    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except HoldfastError as refusal:
            await _discard(receive)
            await problem(scope, refusal)(scope, receive, send)
            return
        await self._app(scope, _Counted(receive, self._settings.most_body_bytes), send)

    def _check(self, scope: Scope) -> None:
        most = self._settings
        headers = scope["headers"]
        if len(headers) > most.most_headers:
            raise HeadersTooLarge(f"A request has at most {most.most_headers} headers.")
        if sum(len(name) + len(value) for name, value in headers) > most.most_header_bytes:
            raise HeadersTooLarge(f"The headers of a request have at most {most.most_header_bytes} bytes.")
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > most.most_target_bytes:
            raise TargetTooLong(f"Path and query have at most {most.most_target_bytes} bytes together.")
        for name, value in headers:
            if name == b"content-length":
                _check_length(value, most.most_body_bytes)
                _check_unambiguous(scope)


class _Counted:
    """A body that does not say how long it is ends in a refusal as soon as it is too long."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._seen = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._most:
                if message.get("more_body"):
                    await _discard(self._receive)
                raise _too_large(self._most)
        return message


async def _discard(receive: Receive) -> None:
    seen = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while seen < MOST_DISCARDED:
                message = await receive()
                seen += len(message.get("body", b""))
                if not message.get("more_body"):
                    return


def _check_length(value: bytes, most: int) -> None:
    if not value.isdigit():
        raise Invalid("The header Content-Length is not a number.")
    if len(value) > 18 or int(value) > most:
        raise _too_large(most)


def _check_unambiguous(scope: Scope) -> None:
    """Refuse two lengths: a proxy may have believed the other one, and seen another request behind this."""
    if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
        raise AmbiguousLength(hint="Send Content-Length or Transfer-Encoding, not both.")


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"A body has at most {most} bytes.", hint="Store the content elsewhere and send a reference to it."
    )
