"""Gate of every route that belongs to a tenant: identity, rate, form, scope, and only then the body.

The order matters because a body costs: the server reads none for an unknown caller, and a complaint about a body never
reveals the answer it would have had. The body is read by the strict reader of payloads, so the gaps of JSON (NaN,
repeated keys, half characters, huge numbers) are refused here with their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from fastapi import params
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Unauthenticated
from holdfast.payloads.encoding import decode
from holdfast.server.access.identity import current_identity, needs_lookup
from holdfast.server.access.limits import RateLimiter
from holdfast.server.access.scopes import scope_check
from holdfast.server.http.peers import Proxies
from holdfast.server.http.queries import Handler, query_check
from holdfast.server.http.refusals import NotAcceptable, UnsupportedMedia

_JSON: Final = "application/json"
_UNKNOWN: Final = "unknown"
_WEIGHT: Final = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")


class GatedRoute(APIRoute):
    """`APIRouter(route_class=GatedRoute)`. `x-reads` are the media types of a body, by default JSON only; `x-produces`
    those of an answer beside the route's own.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[params.Depends] | None = None,
        **options: Any,
    ) -> None:
        """Take the scope checks out of the dependencies: there, each would cost a request several times its own
        work.
        """
        given = [*(dependencies or ())]
        self._scope_checks = [check for one in given if (check := scope_check(one)) is not None]
        others = [one for one in given if scope_check(one) is None]
        super().__init__(path, endpoint, dependencies=others, **options)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        extra = self.openapi_extra or {}
        produced, check_query = (_produced(self), *extra.get("x-produces", ())), query_check(self)
        raw_types: tuple[str, ...] = tuple(extra.get("x-reads", ()))

        async def gated(request: Request) -> Response:
            await admit(request)
            check_accept(request.headers, *produced)
            for check in self._scope_checks:
                await check(request)
            check_query(request)
            if self.body_field is not None:
                await read_json(request)
            elif raw_types:
                check_media_type(request.headers, raw_types)
            return await handle(request)

        return gated


async def admit(request: Request) -> None:
    """Authenticate the caller and apply the rate limit; failed authentications count by address.

    Where authentication takes a look-up, the address is counted first: a flood of wrong keys is refused unread.
    """
    limiter: RateLimiter = request.app.state.rate_limiter
    is_counted = needs_lookup(request)
    if is_counted:
        count_address(request, _UNKNOWN)
    try:
        identity = await current_identity(request)
    except Unauthenticated:
        if not is_counted:
            count_address(request, _UNKNOWN)
        raise
    if is_counted:
        limiter.give_back(_address(request, _UNKNOWN))
    limiter.take((identity.tenant, identity.subject))


def count_address(request: Request, purpose: str) -> None:
    """Count a request of an address for this purpose, by any caller; refuse it when there are too many."""
    limiter: RateLimiter = request.app.state.rate_limiter
    limiter.take(_address(request, purpose))


def _address(request: Request, purpose: str) -> tuple[str, str, str]:
    """Three words: callers are counted by two, so that no tenant has the name of an address."""
    proxies: Proxies = request.app.state.proxies
    return "address", purpose, proxies.peer_of(request)


async def read_json(request: Request) -> None:
    """Read and keep the body, so that the framework finds it parsed."""
    raw = await request.body()
    if not raw:
        return
    check_media_type(request.headers, (_JSON,))
    request._json = decode(raw, "The body")  # pyright: ignore[reportPrivateUsage]  # where Starlette keeps it


def check_media_type(headers: Headers, readable: tuple[str, ...]) -> None:
    given, _, options = headers.get("content-type", "").partition(";")
    charset = options.lower().replace(" ", "").replace('"', "")
    if given.strip().lower() not in readable or ("charset=" in charset and "charset=utf-8" not in charset):
        raise UnsupportedMedia(
            f"The body must be {' or '.join(readable)}.", hint="Send it in UTF-8 and say so in Content-Type."
        )


def check_accept(headers: Headers, *produced: str) -> str:
    """Choose the media type of the answer: the one the caller wants most, the first of several; refuse the others."""
    accepted = [part for line in headers.getlist("accept") for part in line.split(",")]
    if not accepted:
        return produced[0]
    best = max(produced, key=lambda media: _weight(accepted, media))
    if not _weight(accepted, best):
        raise NotAcceptable(f"The answer is {' or '.join(produced)}.", hint="Accept that, or leave the header out.")
    return best


def _weight(accepted: Sequence[str], produced: str) -> float:
    """The weight of a media type in the most specific part of Accept that names it, 0 for none."""
    ranges = (produced, f"{produced.partition('/')[0]}/*", "*/*", "")
    found = [(ranges.index(wanted), weight) for wanted, weight in map(_wanted, accepted) if wanted in ranges]
    nearest = min((rank for rank, _ in found), default=0)
    return max((weight for rank, weight in found if rank == nearest), default=0.0)


def _wanted(part: str) -> tuple[str, float]:
    wanted, _, options = part.partition(";")
    weights = [option.strip()[2:] for option in options.split(";") if option.strip().lower().startswith("q=")]
    return wanted.strip().lower(), _number(weights[0]) if weights else 1.0


def _number(weight: str) -> float:
    """A weight as RFC 9110 writes it; anything else counts as wanted."""
    return float(weight) if _WEIGHT.fullmatch(weight.strip()) else 1.0


def _produced(route: APIRoute) -> str:
    response_class = route.response_class
    response_class = getattr(response_class, "value", response_class)  # FastAPI wraps its default
    return getattr(response_class, "media_type", None) or _JSON
