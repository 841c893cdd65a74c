"""`holdfast activities`: what applications report of their work in the states of machines."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from holdfast.cli.commands.machines.lifecycle import activity_row
from holdfast.cli.json_args import read_given
from holdfast.cli.render.output import say, show, show_json, table
from holdfast.cli.target import actor, anywhere, place
from holdfast.errors import Refused
from holdfast.runtime.machines.activities import Entry

activities = typer.Typer(help="What applications report of their work in the states of machines.", no_args_is_help=True)

Instance = Annotated[str, typer.Argument(metavar="ID", help="The instance's id.")]
One = Annotated[str, typer.Argument(metavar="ACTIVITY", help="The activity's id.")]
By = Annotated[str | None, typer.Option(help="Who does it.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@activities.command("list")
@anywhere
def list_(instance: Instance, json: Json = False) -> None:
    """Activities of an instance, oldest first."""
    with place() as engine:
        found = engine.activities(instance)
    if json:
        show_json([msgspec.to_builtins(each) for each in found])
    elif found:
        table(("id", "entry", "activity", "by", "status"), [(each.id, *activity_row(each)) for each in found])
    else:
        say("The instance has no activities.")


@activities.command()
@anywhere
def write(
    instance: Instance,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the work is called.")],
    status: Annotated[str, typer.Option(help="How it stands.")],
    entry: Annotated[str, typer.Option(help="The number of an entry, `present`, or `none`.")] = "present",
    data: Annotated[str | None, typer.Option(help="More about it, as JSON.")] = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Write the status of some work, over the one before of the same entry, name and actor."""
    who = actor(by)
    content = read_given(data, "--data")
    with place() as engine:
        found = engine.activity(instance, name, status=status, by=who, entry=_entry(entry), data=content)
    show(msgspec.to_builtins(found), json=json)


@activities.command()
@anywhere
def freeze(instance: Instance, activity: One, by: By = None, json: Json = False) -> None:
    """Refuse changes of an activity until it is unfrozen."""
    who = actor(by)
    with place() as engine:
        show(msgspec.to_builtins(engine.freeze_activity(instance, activity, by=who)), json=json)


@activities.command()
@anywhere
def unfreeze(instance: Instance, activity: One, by: By = None, json: Json = False) -> None:
    """Let an activity be changed again."""
    who = actor(by)
    with place() as engine:
        show(msgspec.to_builtins(engine.unfreeze_activity(instance, activity, by=who)), json=json)


def _entry(given: str) -> Entry:
    if given == "present" or given == "none":
        return given
    if given.isascii() and given.isdigit() and len(given) <= 10:
        return int(given)
    raise Refused(f"{given!r} is no entry.", code="ENTRY_INVALID", hint="Write its number, `present`, or `none`.")
