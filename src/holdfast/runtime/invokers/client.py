"""The HTTP client of operations: one exchange with one service, redirects only within it, every quantity bounded.

Connections are kept, for less time than servers keep theirs: they all lead to the one origin the operator named.
Cookies are not: what a service hands out for one tenant's call must not come with another's. The client writes headers,
secrets included, to its debug log, so what it logs in the course of our requests is dropped.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx2
import msgspec

from holdfast.runtime.invokers.errors import CallFailed, CallRefused
from holdfast.runtime.invokers.requests import Request
from holdfast.runtime.invokers.servers import Server
from holdfast.version import __version__

MOST_ANSWER: Final = 1024 * 1024
MOST_REDIRECTS: Final = 3
_CONNECT_SECONDS: Final = 5.0
_LIMITS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=2.0)
_KEPT: Final = frozenset({307, 308})  # redirects that keep the method and the body

_calling: Final[ContextVar[bool]] = ContextVar("holdfast_calling", default=False)


def _is_not_ours(_: logging.LogRecord) -> bool:
    return not _calling.get()


for _name in ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy"):
    logging.getLogger(_name).addFilter(_is_not_ours)


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes
    truncated: bool = False


class Client:
    def __init__(self, server: Server, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._origin = httpx2.URL(server.origin)
        self._timeout = timeout
        self._client = httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            timeout=httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
            verify=True if tls is None else tls,
            limits=_LIMITS,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            headers={
                "accept": "application/json, text/*;q=0.5, */*;q=0.1",
                "accept-encoding": "identity",  # the limit counts what arrives
                "user-agent": f"holdfast/{__version__}",
            },
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, request: Request, title: str) -> Answer:
        calling = _calling.set(True)
        clock = asyncio.timeout(self._timeout)
        try:
            async with clock:
                return await self._follow(request, title)
        except TimeoutError:
            if not clock.expired():
                raise
            raise _late(title, self._timeout) from None
        except (httpx2.HTTPError, httpx2.StreamError) as failure:
            raise self._failure(failure, title) from None
        except httpx2.InvalidURL:
            raise CallRefused("OPERATION_REDIRECTED", f"{title} led to an address that makes no sense.") from None
        finally:
            _calling.reset(calling)

    async def _follow(self, request: Request, title: str) -> Answer:
        method, url, content = request.method, self._origin.copy_with(raw_path=request.target.encode()), request.content
        headers = dict(request.headers)
        if request.cookies:
            headers["cookie"] = "; ".join(request.cookies)
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._exchange(method, url, headers, content)
            location = answer.headers.get("location")
            if not 301 <= answer.status <= 308 or location is None or answer.status in (304, 305, 306):
                return answer
            url = self._within(url.join(location), title)
            if answer.status == 303:
                method, content = "GET" if method != "HEAD" else method, None
                headers.pop("content-type", None)
            elif answer.status not in _KEPT and method not in ("GET", "HEAD"):
                raise CallRefused("OPERATION_REDIRECTED", f"{title} was redirected, and cannot be repeated elsewhere.")
        raise CallRefused("OPERATION_REDIRECTED", f"{title} was redirected more than {MOST_REDIRECTS} times.")

    def _within(self, url: httpx2.URL, title: str) -> httpx2.URL:
        if (url.scheme, url.host, _port(url)) != (self._origin.scheme, self._origin.host, _port(self._origin)):
            raise CallRefused(
                "OPERATION_REDIRECTED", f"{title} was redirected to another server; that is not followed."
            )
        return url

    async def _exchange(self, method: str, url: httpx2.URL, headers: dict[str, str], content: bytes | None) -> Answer:
        request = self._client.build_request(method, url, headers=headers, content=content)
        response = await self._client.send(request, stream=True)
        try:
            answer = Answer(response.status_code, dict(response.headers.items()), b"")
            parts: list[bytes] = []
            size = 0
            async for chunk in response.aiter_raw():
                parts.append(chunk)
                size += len(chunk)
                if size > MOST_ANSWER:
                    answer.truncated = True
                    break
            answer.body = b"".join(parts)[:MOST_ANSWER]
            return answer
        finally:
            await response.aclose()

    def _failure(self, failure: httpx2.HTTPError | httpx2.StreamError, title: str) -> CallFailed | CallRefused:
        """Convert a failure of the client by its class alone: its message may quote the request."""
        kind = type(failure).__name__
        if isinstance(failure, httpx2.ConnectError | httpx2.ConnectTimeout):
            return CallFailed("OPERATION_UNREACHABLE", f"{title}: there is no connection to the service ({kind}).")
        if isinstance(failure, httpx2.TimeoutException):
            return _late(title, self._timeout)
        if isinstance(failure, httpx2.LocalProtocolError):
            return CallRefused("OPERATION_INPUT_INVALID", f"{title}: the request cannot be sent.")
        return CallFailed("OPERATION_ANSWER_BROKEN", f"{title}: the answer broke off or is no HTTP ({kind}).")


def _late(title: str, seconds: float) -> CallFailed:
    return CallFailed("OPERATION_TIMEOUT", f"{title} was not answered within {seconds:g} s.")


def _port(url: httpx2.URL) -> int | None:
    return url.port or {"http": 80, "https": 443}.get(url.scheme)
