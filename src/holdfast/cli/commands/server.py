"""`holdfast server`: the HTTP API alone; workers run elsewhere."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.process import logs, serving
from holdfast.cli.render.output import say, show_json
from holdfast.logs import logger
from holdfast.runtime.process.loop import run
from holdfast.settings import Settings

log = logger("holdfast.server")

App = Annotated[
    str | None,
    typer.Argument(metavar="APP", help="module:attribute, an Engine or a function that makes one; else a bare one."),
]
Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[
    int,
    typer.Option("--port", envvar="HOLDFAST_PORT", min=0, max=65535, help="The port; 0 takes any that is free."),
]
Cors = Annotated[
    list[str] | None, typer.Option("--cors", help="An origin whose pages may ask; may be repeated. Else none may.")
]
LogJson = Annotated[bool, typer.Option("--log-json", help="One JSON object per log line.")]
Json = Annotated[bool, typer.Option("--json", help="Say in JSON that it listens.")]


def server(
    app: App = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    development: Annotated[
        bool, typer.Option("--development", help="Believe who callers say they are; on loopback only.")
    ] = False,
    cors: Cors = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="/metrics: off, authenticated or open.", show_default="off")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0, help="Requests per second and person; 0: any number.", show_default="50"),
    ] = None,
    resolver: Annotated[
        str | None,
        typer.Option("--resolver", help="module:attribute that says what people may do; else HOLDFAST_RESOLVER."),
    ] = None,
    log_json: LogJson = False,
    json: Json = False,
) -> None:
    """Serve the HTTP API until it is stopped; open requests then finish.

    Callers are identified by HOLDFAST_JWT_… and the API keys of `holdfast keys`; HOLDFAST_SERVER_… sets the limits.
    """
    logs.configure(json=log_json, level=Settings.from_environment().log_level)
    serving.require_api()
    told = {"cors_origins": tuple(cors or ()) or None, "metrics": metrics, "rate": rate}
    chosen = {"host": host, "port": port, **{name: value for name, value in told.items() if value is not None}}
    run(_serve(app, chosen, development, resolver, json=json))


async def _serve(
    app: str | None, chosen: dict[str, Any], development: bool, resolver: str | None, *, json: bool
) -> None:
    from holdfast.server.auth.resolving import VARIABLE
    from holdfast.server.auth.settings import AuthSettings
    from holdfast.server.settings import ServerSettings

    leave = serving.leaving()
    auth = AuthSettings.from_environment({**os.environ, **({VARIABLE: resolver} if resolver else {})})
    auth = msgspec.structs.replace(auth, development=auth.development or development)
    async with serving.served(app, ServerSettings.from_environment(**chosen), auth, worker=None) as (_, url):
        if json:
            show_json({"url": url, "pid": os.getpid()}, flush=True)
        else:
            say(f"Holdfast listens on {url}")
        await leave.wait()
        log.info("Leaving: open requests finish")
