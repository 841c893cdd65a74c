"""`holdfast db`: the database behind the engine. HOLDFAST_DSN names it, otherwise it is the embedded server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.render.output import say, show, show_text, without_password
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.store import embedded
from holdfast.store.admin import schema as migrations

NOT_RUNNING = 3  # what service tools answer for a service that is not running

db = typer.Typer(help="Start, stop and inspect the embedded PostgreSQL; migrate any database.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Directory = Annotated[
    Path | None, typer.Option("--directory", help="Of the embedded server; its default place if not given.")
]


@db.command()
def start(directory: Directory = None, json: Json = False) -> None:
    """Start the embedded PostgreSQL, or find it running."""
    _refuse_given_address()
    server = embedded.start(_absolute(directory))
    show(_about(server), json=json)


@db.command()
def stop(directory: Directory = None, json: Json = False) -> None:
    """Stop the embedded PostgreSQL; its data stays."""
    stopped = embedded.stop(_absolute(directory))
    if json:
        show({"stopped": stopped}, json=True)
    else:
        say("The embedded PostgreSQL is stopped." if stopped else "The embedded PostgreSQL was not running.")


@db.command()
def status(directory: Directory = None, json: Json = False) -> None:
    """Check that the database has the schema of this release. Exit code 3: the embedded server does not run."""
    address = Settings.from_environment().dsn
    if address and directory is None:
        show({"server": "given", "running": True, **_schema(address), "dsn": without_password(address)}, json=json)
        return
    place = _absolute(directory) or embedded.default_directory()
    server = embedded.status(place)
    if server is None:
        show({"server": "embedded", "running": False, "directory": place}, json=json)
        raise typer.Exit(NOT_RUNNING)
    show(_about(server) | _schema(server.dsn), json=json)


@db.command()
def path(json: Json = False) -> None:
    """Print the data directory of the embedded PostgreSQL."""
    place = embedded.default_directory()
    if json:
        show({"directory": place}, json=True)
    else:
        show_text(str(place))


@db.command()
def migrate(directory: Directory = None, json: Json = False) -> None:
    """Bring the schema up to this release; safe to run any number of times, by any number of processes."""
    address = Settings.from_environment().dsn
    if not address or directory is not None:
        address = embedded.start(_absolute(directory)).dsn
    applied = migrations.migrate(address)
    if json:
        show({"applied": applied, "schema": migrations.latest(), "dsn": without_password(address)}, json=True)
    elif applied:
        say(f"Applied migrations {', '.join(map(str, applied))}: the schema is at {migrations.latest()}.")
    else:
        say(f"Nothing to do: the schema is at {migrations.latest()}.")


def _about(server: embedded.Server) -> dict[str, Any]:
    return {
        "server": "embedded",
        "running": True,
        "directory": server.directory,
        "log": server.log,
        "pid": server.pid,
        "dsn": server.dsn,
    }


def _schema(address: str) -> dict[str, int]:
    return {"schema": migrations.current(address), "latest": migrations.latest()}


def _absolute(directory: Path | None) -> Path | None:
    return None if directory is None else directory.expanduser().absolute()


def _refuse_given_address() -> None:
    if Settings.from_environment().dsn:
        raise HoldfastError(
            "HOLDFAST_DSN names a server of yours, so nobody would use the embedded one.",
            code="EMBEDDED_NOT_WANTED",
            hint="Unset HOLDFAST_DSN to use the embedded PostgreSQL.",
        )
