"""The gate of every route that belongs to a tenant: who, how often, in which form, for what, and only then the body.

In this order because a body costs: nobody unknown makes the server read one, and nobody learns from the complaint about
a body what the answer would have been. The body is read by the strict reader of payloads, so what JSON leaves open
(NaN, repeated keys, half characters, huge numbers) is refused here with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from fastapi import params
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import Unauthenticated
from holdfast.payloads.encoding import decode
from holdfast.server.identity import current_identity
from holdfast.server.limits import RateLimiter
from holdfast.server.refusals import NotAcceptable, UnsupportedMedia
from holdfast.server.scopes import scope_check

_JSON: Final = "application/json"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GatedRoute(APIRoute):
    """`APIRouter(route_class=GatedRoute)`. `reads` are the media types of a body, by default JSON only."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[params.Depends] | None = None,
        **options: Any,
    ) -> None:
        """Scopes are asked for here: as dependencies they would cost a request several times what the asking takes."""
        given = [*(dependencies or ())]
        self._scope_checks = [check for one in given if (check := scope_check(one)) is not None]
        others = [one for one in given if scope_check(one) is None]
        super().__init__(path, endpoint, dependencies=others, **options)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        extra = self.openapi_extra or {}
        produced = _produced(self)
        raw_types: tuple[str, ...] = tuple(extra.get("x-reads", ()))

        async def gated(request: Request) -> Response:
            await admit(request)
            check_accept(request.headers, produced)
            for check in self._scope_checks:
                await check(request)
            if self.body_field is not None:
                await read_json(request)
            elif raw_types:
                check_media_type(request.headers, raw_types)
            return await handle(request)

        return gated


async def admit(request: Request) -> None:
    """Authenticated and not too often; whoever fails to say who they are is counted by address."""
    limiter: RateLimiter = request.app.state.rate_limiter
    try:
        identity = await current_identity(request)
    except Unauthenticated:
        limiter.take(("unknown", request.client.host if request.client else ""))
        raise
    limiter.take((identity.tenant, identity.subject))


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


def check_accept(headers: Headers, produced: str) -> None:
    accepted = headers.getlist("accept")
    if accepted and not any(_accepts(part, produced) for line in accepted for part in line.split(",")):
        raise NotAcceptable(f"The answer is {produced}.", hint="Accept that, or leave the header out.")


def _accepts(part: str, produced: str) -> bool:
    wanted, _, options = part.partition(";")
    wanted = wanted.strip().lower()
    weights = [option.strip()[2:] for option in options.split(";") if option.strip().lower().startswith("q=")]
    if weights and weights[0].strip("0") in ("", "."):
        return False
    return wanted in ("", "*/*", produced, f"{produced.partition('/')[0]}/*")


def _produced(route: APIRoute) -> str:
    response_class = route.response_class
    response_class = getattr(response_class, "value", response_class)  # FastAPI wraps its default
    return getattr(response_class, "media_type", None) or _JSON
