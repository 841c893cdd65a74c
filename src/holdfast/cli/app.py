"""The `holdfast` command: its parts, and how an error leaves it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

from holdfast.cli.commands.advance import advance
from holdfast.cli.commands.bench import bench
from holdfast.cli.commands.contracts.contracts import contracts
from holdfast.cli.commands.control import abort, cancel, pause, resume
from holdfast.cli.commands.db import db
from holdfast.cli.commands.dead_letters import dead_letters, requeue
from holdfast.cli.commands.docs import docs
from holdfast.cli.commands.doctor import doctor
from holdfast.cli.commands.effects import effects
from holdfast.cli.commands.flows import flows
from holdfast.cli.commands.instances import instances
from holdfast.cli.commands.keys import keys
from holdfast.cli.commands.machines.acks import acks
from holdfast.cli.commands.machines.activities import activities
from holdfast.cli.commands.machines.consumers import consumers
from holdfast.cli.commands.machines.lifecycle import lifecycle
from holdfast.cli.commands.machines.machines import machines
from holdfast.cli.commands.machines.notices import notices
from holdfast.cli.commands.machines.trigger import trigger
from holdfast.cli.commands.maintain import maintain
from holdfast.cli.commands.migrate import migrate, revert_migration
from holdfast.cli.commands.publish import publish
from holdfast.cli.commands.rerun import rerun
from holdfast.cli.commands.server import server
from holdfast.cli.commands.show import show
from holdfast.cli.commands.signal import signal
from holdfast.cli.commands.start import start
from holdfast.cli.commands.stuck import stuck
from holdfast.cli.commands.tasks import tasks
from holdfast.cli.commands.timeline import timeline
from holdfast.cli.commands.up import up
from holdfast.cli.commands.validate import schema, validate
from holdfast.cli.commands.worker import worker, workers
from holdfast.cli.render.output import complain, say
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.usage import MISUSE, command_line_invalid
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.store.admin.schema import latest
from holdfast.version import __version__

app = typer.Typer(
    help="Durable workflows on PostgreSQL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
PANELS: Final[dict[str, tuple[Callable[..., None], ...]]] = {
    "Run": (up, server, worker),
    "Define": (validate, schema, publish, flows),
    "Instances": (start, advance, signal, trigger, instances, show, timeline, lifecycle, cancel, abort, pause, resume),
    "Repair": (requeue, rerun, migrate, revert_migration),
    "Look after": (doctor, notices, workers, maintain, bench, docs),
}
GROUPS: Final = {
    "Define": {"contracts": contracts, "machines": machines},
    "Instances": {"tasks": tasks, "activities": activities, "consumers": consumers, "acks": acks},
    "Repair": {"dlq": dead_letters, "effects": effects, "stuck": stuck},
    "Look after": {"db": db, "keys": keys},
}
NAMES: Final = {instances: "list"}
for panel, verbs in PANELS.items():
    for verb in verbs:
        app.command(NAMES.get(verb), rich_help_panel=panel)(verb)
    for name, group in GROUPS.get(panel, {}).items():
        app.add_typer(group, name=name, rich_help_panel=panel)
# Names they had before; scripts may know them.
app.command("instances", hidden=True)(instances)
app.add_typer(dead_letters, name="dead-letters", hidden=True)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


@app.callback()
def holdfast(
    _: Annotated[
        bool, typer.Option("--version", help="Tell the version and leave.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(rich_help_panel="Look after")
def version(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """The version of Holdfast, of its schema and of Python."""
    if json:
        show_facts({"holdfast": __version__, "schema": latest(), "python": platform.python_version()}, json=True)
    else:
        say(f"holdfast {__version__} (schema {latest()}, Python {platform.python_version()})")


def main() -> None:
    """Every error becomes one line with its code and an exit code; a defect of ours shows its traceback when asked."""
    try:
        sys.exit(app(prog_name="holdfast", standalone_mode=not _wants_json()))
    except typer.Abort:
        sys.exit(HoldfastError.exit_code)
    except MISUSE as misuse:
        error = command_line_invalid(misuse)
        complain(error, json=True)
        sys.exit(error.exit_code)
    except HoldfastError as error:
        complain(error, json=_wants_json())
        sys.exit(error.exit_code)
    except Exception as defect:
        if _wants_tracebacks():
            raise
        complain(
            HoldfastError(
                f"{type(defect).__name__}: {defect}", code="UNEXPECTED", hint="Set HOLDFAST_LOG=debug to see where."
            ),
            json=_wants_json(),
        )
        sys.exit(HoldfastError.exit_code)


def _wants_json() -> bool:
    """Look for `--json` among the arguments: a failed command may not have read its options."""
    return "--json" in sys.argv[1:]


def _wants_tracebacks() -> bool:
    try:
        return Settings.from_environment().log_level == "debug"
    except HoldfastError:
        return False
