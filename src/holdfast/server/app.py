"""Assembly of the application.

A request passes: CORS (if any) → its name and trace → its size → the gate of its route (identity, rate, form) → the
route → the engine. A refusal at any of these becomes one problem document.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request

from holdfast.errors import Unauthenticated
from holdfast.runtime.engine import Engine
from holdfast.server import routes
from holdfast.server.access.identity import Authenticator, Identity
from holdfast.server.access.limits import RateLimiter
from holdfast.server.http.connections import Connections
from holdfast.server.http.openapi import describe
from holdfast.server.http.peers import Proxies
from holdfast.server.http.problems import tell_problems
from holdfast.server.http.sse import Streams
from holdfast.server.middleware.request_context import RequestContext
from holdfast.server.middleware.size_limits import SizeLimits
from holdfast.server.routes.description import Descriptions
from holdfast.server.routes.health import ReadinessCheck
from holdfast.server.settings import ServerSettings
from holdfast.version import __version__

_FREQUENT: Final = {"ui.workflows", "tasks", "instances"}
_EXPOSED: Final = ["ETag", "Location", "Preference-Applied", "Retry-After", "X-Request-Id"]


def create_app(
    engine: Engine, settings: ServerSettings | None = None, *, authenticate: Authenticator | None = None
) -> FastAPI:
    """Build the HTTP API over an engine whose lifespan belongs to the application: see `Engine.lifespan`."""
    chosen = settings or ServerSettings()
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        summary="Durable workflows over HTTP",
        openapi_url=None,  # `routes/description.py` serves it
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        middleware=_middleware(chosen),
    )
    app.state.engine = engine
    app.state.settings = chosen
    app.state.authenticator = authenticate or _know_nobody
    app.state.rate_limiter = RateLimiter(chosen.rate, chosen.burst)
    app.state.proxies = Proxies(chosen.proxies)
    app.state.connections = Connections(chosen)
    app.state.descriptions = Descriptions(app)
    app.state.streams = Streams(chosen)
    app.state.readiness = ReadinessCheck(engine)
    for router in _routers():
        app.router.routes += router.routes  # not included: each path would be looked up twice, router by router
    tell_problems(app)
    describe(app)
    return app


async def _know_nobody(_: Request) -> Identity:
    raise Unauthenticated(
        "This server knows nobody.", hint="Give `create_app` an authenticator: tokens, API keys, or both."
    )


def _routers() -> Iterator[APIRouter]:
    """The router of every module of `routes`, those most in use first: paths are tried one after the other."""
    room = f"{routes.__name__}."
    names = [found.name.removeprefix(room) for found in walk_packages(routes.__path__, room) if not found.ispkg]
    for name in sorted(names, key=lambda name: (name not in _FREQUENT, name)):
        yield import_module(room + name).router


def _middleware(settings: ServerSettings) -> list[Middleware]:
    """The outermost first."""
    inner = [Middleware(RequestContext), Middleware(SizeLimits, settings=settings)]
    if not settings.cors_origins:
        return inner
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(settings.cors_origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=_EXPOSED,
    )
    return [cors, *inner]
