"""`holdfast up`: database, worker and API in one process, to try things out and to develop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.server import App, Host, Json, LogJson, Port
from holdfast.cli.process import logs, process, serving
from holdfast.cli.process.watch import Definitions
from holdfast.cli.render.output import say, show_json, without_password
from holdfast.cli.render.output import show as show_facts
from holdfast.errors import NotFound
from holdfast.logs import logger
from holdfast.runtime.engine import Engine
from holdfast.runtime.process.loop import run
from holdfast.runtime.publishing import Published
from holdfast.settings import Settings
from holdfast.version import __version__

DEFINITIONS = Path("definitions")
log = logger("holdfast.up")


def up(
    app: App = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where files of steps lie; ./definitions if it is there.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    watch: Annotated[bool, typer.Option("--watch", help="Publish files of steps again when they change.")] = False,
    dsn: Annotated[str | None, typer.Option("--dsn", help="A PostgreSQL of yours instead of the embedded one.")] = None,
    log_json: LogJson = False,
    json: Json = False,
) -> None:
    """Run everything in one process: PostgreSQL, a worker, the API. For development, on this machine only.

    Callers are not authenticated. Files of steps are published when it starts and, with --watch,
    whenever they change: as the next version, while running instances keep theirs. Ctrl-C lets it drain.
    """
    logs.configure(json=log_json, level=Settings.from_environment().log_level)
    serving.require_api()
    if dsn:
        os.environ["HOLDFAST_DSN"] = dsn  # for the engine an application makes itself, too
    run(_run(app, _directory(directory), host, port, watch=watch, json=json))
    process.leave_stuck_threads()


def _directory(given: Path | None) -> Path | None:
    if given is not None and not given.is_dir():
        raise NotFound(f"There is no directory {str(given)!r}.", code="FILE_NOT_FOUND", hint="Check --dir.")
    return given or (DEFINITIONS if DEFINITIONS.is_dir() else None)


async def _run(app: str | None, directory: Path | None, host: str, port: int, *, watch: bool, json: bool) -> None:
    from holdfast.server.auth.settings import AuthSettings
    from holdfast.server.settings import ServerSettings

    leave = serving.leaving()
    settings = ServerSettings.from_environment(host=host, port=port, rate=0, metrics="open")
    async with serving.served(app, settings, AuthSettings(development=True), worker={}) as (engine, url):
        definitions = None if directory is None else Definitions(engine, directory)
        published = [] if definitions is None else await definitions.publish()
        _tell(engine, url, published, json=json)
        following = asyncio.create_task(definitions.follow()) if watch and definitions is not None else None
        await leave.wait()
        log.info("Leaving: open requests and running handlers finish")
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following


def _tell(engine: Engine, url: str, published: Sequence[Published], *, json: bool) -> None:
    if json:
        flows = [{"name": one.name, "version": one.version, "new": one.new} for one in published]
        show_json({"url": url, "pid": os.getpid(), "flows": flows}, flush=True)
        return
    say(f"Holdfast {__version__} is up. Ctrl-C stops it.")
    handlers = ", ".join(sorted({*engine.handlers.names(), *engine.calls.names()}))
    own = Settings.from_environment().dsn
    facts = {
        "api": url,
        "database": without_password(own) if own else "embedded; it stays until `holdfast db stop`",
        "handlers": handlers or None,
        "flows": ", ".join(f"{one.name} version {one.version}" for one in published) or None,
        "in another shell": f"export HOLDFAST_URL={url}",
    }
    show_facts(facts, json=False)
