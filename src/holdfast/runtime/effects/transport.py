"""HTTP client of webhooks: one POST to one address that was checked, no redirects, every quantity bounded.

The client is httpx2: it is maintained, speaks to a given address under another name for TLS, and can be made to take
nothing from the environment. Connections are not kept: a kept one would be chosen by its address, and two names behind
one address must not share a connection that TLS has verified for one of them.

The client writes headers, secrets included, to its debug log. Its log lines about our requests are dropped; those
about the application's own requests are not ours to touch.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx2

from holdfast.runtime.effects.addresses import Target
from holdfast.runtime.effects.delivery import EffectFailed
from holdfast.runtime.effects.evidence import Answer
from holdfast.runtime.effects.options import EffectOptions
from holdfast.version import __version__

_sending: Final[ContextVar[bool]] = ContextVar("holdfast_sending", default=False)


def _is_not_ours(_: logging.LogRecord) -> bool:
    return not _sending.get()


for _name in ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.proxy"):
    logging.getLogger(_name).addFilter(_is_not_ours)


class Transport:
    def __init__(self, options: EffectOptions) -> None:
        self._most = options.body_limit
        self._client = httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # one tenant's would go with another's request
            timeout=httpx2.Timeout(options.read_timeout, connect=options.connect_timeout),
            verify=True if options.tls is None else options.tls,
            limits=httpx2.Limits(max_connections=options.concurrency, max_keepalive_connections=0),
            headers={
                "accept": "*/*",
                "accept-encoding": "identity",  # evidence of an answer is kept as received
                "connection": "close",
                "user-agent": f"holdfast/{__version__}",
            },
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def post(self, target: Target, address: str, headers: dict[str, str], body: bytes, answer: Answer) -> None:
        """Fill `answer` as far as it gets; no more of a body is read than is asked for."""
        sending = _sending.set(True)
        try:
            await self._exchange(target, address, headers, body, answer)
        except httpx2.HTTPError as failure:
            raise _failure(failure) from failure
        finally:
            _sending.reset(sending)

    async def _exchange(
        self, target: Target, address: str, headers: dict[str, str], body: bytes, answer: Answer
    ) -> None:
        request = self._client.build_request(
            "POST",
            target.at(address),
            headers={"host": target.origin, **headers},
            content=body,
            extensions={"sni_hostname": target.host},
        )
        response = await self._client.send(request, stream=True)
        try:
            answer.status, answer.headers = response.status_code, list(response.headers.items())
            async for chunk in response.aiter_raw():
                answer.body += chunk
                if len(answer.body) > self._most:
                    answer.body, answer.truncated = answer.body[: self._most], True
                    return
        finally:
            await response.aclose()


def _failure(failure: httpx2.HTTPError) -> EffectFailed:
    if isinstance(failure, httpx2.TimeoutException):
        return EffectFailed("EFFECT_TIMEOUT", f"The target did not answer in time ({type(failure).__name__}).")
    if isinstance(failure, httpx2.ConnectError):
        return EffectFailed("EFFECT_UNREACHABLE", f"The target cannot be reached: {failure}")
    return EffectFailed("EFFECT_ANSWER_BROKEN", f"The answer broke off or makes no sense: {failure!r}")
