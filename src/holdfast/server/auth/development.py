"""Development identity: headers name the caller, and no proof is checked.

It needs three things at once: it is switched on, the server listens on loopback only, and the request comes from
loopback. A request through a proxy is refused, since any client may be behind it, and so is one that a page of another
origin in the developer's own browser could send: its Host, Origin and Sec-Fetch-Site headers give it away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request

from holdfast.errors import HoldfastError, Unauthenticated
from holdfast.logs import logger
from holdfast.loopback import is_loopback
from holdfast.server.access.identity import DEVELOPMENT, Identity
from holdfast.server.auth import naming
from holdfast.server.auth.refusals import REALM

log = logger("holdfast.auth")

TENANT: Final = "x-holdfast-tenant"
SUBJECT: Final = "x-holdfast-subject"
PARTITION: Final = "x-holdfast-partition"
ROLES: Final = "x-holdfast-roles"
CAPABILITIES: Final = "x-holdfast-capabilities"
SUBJECT_OTHERWISE: Final = "developer"
BETWEEN_WARNINGS: Final = 60.0
_NAMES: Final = frozenset({TENANT, SUBJECT, PARTITION, ROLES, CAPABILITIES})
_OF_PROXIES: Final = frozenset({"forwarded", "via", "x-real-ip"})
_PREFIX_OF_PROXIES: Final = "x-forwarded"  # whatever follows: proxies make up names of their own
_MORE_THAN_A_HOST: Final = frozenset("@/?#\\")
_OWN_SITES: Final = (None, "none", "same-origin", "same-site")


class Development:
    """Authenticator for development. `listen_host` is the server's own address: not even a switch opens it beyond
    loopback.
    """

    def __init__(
        self, listen_host: str, *, tenant: str = "default", clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not is_loopback(listen_host):
            raise HoldfastError(
                f"The development identity is switched on, but the server would listen on {listen_host!r}.",
                code="DEVELOPMENT_EXPOSED",
                hint="Listen on 127.0.0.1, or switch it off and use tokens or API keys.",
            )
        self._tenant = tenant
        self._clock = clock
        self._warned_at: float | None = None

    def announce(self) -> None:
        log.warning(
            "THE DEVELOPMENT IDENTITY IS ON: every process on this machine may act as anybody, without credentials. "
            "Never use it for anything that matters."
        )

    async def authenticate(self, request: Request) -> Identity:
        self._check_way(request)
        headers = request.headers
        said = {name: _as_written(headers[name]) for name in _NAMES if name in headers}
        identity = Identity(
            tenant=said.get(TENANT, self._tenant),
            subject=said.get(SUBJECT, SUBJECT_OTHERWISE),
            partition=said.get(PARTITION, ""),
            roles=naming.split_words(said.get(ROLES, "")),
            capabilities=frozenset(naming.split_words(said.get(CAPABILITIES, "*"))),
            method=DEVELOPMENT,
        )
        _check_names(identity)
        self._warn()
        return identity

    def _check_way(self, request: Request) -> None:
        if request.client is None or not is_loopback(request.client.host):
            raise _refused("the request does not come from this machine")
        if any(_is_of_a_proxy(name) for name in request.headers):
            raise _refused("the request came through a proxy")
        if not is_loopback(_host_of(request.headers.get("host", ""))):
            raise _refused("the request was sent to another name than localhost")
        if _is_from_elsewhere(request.headers):
            raise _refused("the request was sent by a page of another origin")

    def _warn(self) -> None:
        if self._warned_at is None or self._clock() - self._warned_at >= BETWEEN_WARNINGS:
            self._warned_at = self._clock()
            log.warning("The development identity is in use: requests are believed without credentials.")


def _as_written(text: str) -> str:
    """Terminals send names as UTF-8, browsers as Latin-1; a header arrives as if it were always the latter."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return text


def _is_from_elsewhere(headers: Headers) -> bool:
    origin = headers.get("origin")
    if origin is not None and not is_loopback(_host(origin)):
        return True
    return headers.get("sec-fetch-site") not in _OWN_SITES


def _is_of_a_proxy(header: str) -> bool:
    """Recognise a header of a proxy. Underscores count as hyphens, as they do where headers become variables."""
    name = header.replace("_", "-")
    return name in _OF_PROXIES or name.startswith(_PREFIX_OF_PROXIES)


def _host_of(header: str) -> str:
    """The host of a Host header; empty if it holds more than a host and a port."""
    return "" if _MORE_THAN_A_HOST & set(header) else _host(f"//{header}")


def _host(address: str) -> str:
    """The host of an address; empty if it has a user part: no client sends one, and the text before the `@` may
    deceive.
    """
    try:
        parts = urlsplit(address)
        return "" if "@" in parts.netloc else parts.hostname or ""
    except ValueError:
        return ""


def _check_names(identity: Identity) -> None:
    wrong = [
        name
        for name, fits in (
            ("Tenant", naming.is_tenant(identity.tenant)),
            ("Subject", naming.is_subject(identity.subject)),
            ("Partition", naming.is_partition(identity.partition)),
            ("Roles", naming.are_words(identity.roles)),
            ("Capabilities", naming.are_words(identity.capabilities)),
        )
        if not fits
    ]
    if wrong:
        raise Unauthenticated(
            f"The header X-Holdfast-{wrong[0]} does not hold what it must.",
            code="DEVELOPMENT_INVALID",
            hint="See `holdfast docs authentication` for what names may be.",
            challenge=REALM,
        )


def _refused(reason: str) -> Unauthenticated:
    return Unauthenticated(
        f"The development identity is refused: {reason}.",
        code="DEVELOPMENT_REFUSED",
        hint="It only works straight from the machine itself; use a token or an API key.",
        challenge=REALM,
    )
