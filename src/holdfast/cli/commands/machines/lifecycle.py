"""`holdfast lifecycle`: the states a machine has been in, as lines, as JSON, or as a page of HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.render.output import say, show, table
from holdfast.cli.render.pages import write_page
from holdfast.cli.target import anywhere, place
from holdfast.store.activities import Activity
from holdfast.store.reads.lifecycle import Lifecycle, LifecycleEntry
from holdfast.views.lifecycle_page import lifecycle_page
from holdfast.views.spans import shown


@anywhere
def lifecycle(
    instance: Annotated[str, typer.Argument(metavar="ID", help="The instance's id.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of HTML that needs nothing else.")
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only this many of the latest entries.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """The states a machine has been in, each with its event, actor and moment, and the work reported there."""
    with place() as engine:
        found = engine.lifecycle(instance, last=last)
    if html is not None:
        write_page(html, lifecycle_page(found))
    if json:
        show(msgspec.to_builtins(found), json=True)
    elif html is None:
        _print(found)


def _print(found: Lifecycle) -> None:
    about = found.instance
    show(
        {
            "instance": about.id,
            "reference": about.external_ref,
            "definition": f"{about.definition} version {about.definition_version}",
            "state": about.current_state,
            "status": about.status,
            "last event": about.last_event,
            "created": shown(about.created_at),
            "modified": shown(about.modified_at),
        },
        json=False,
    )
    if found.truncated:
        say("Earlier entries are left out.")
    table(("entry", "at", "from", "to", "event", "by"), [_row(entry) for entry in found.entries])
    told = [each for entry in found.entries for each in entry.activities] + found.other_activities
    if told:
        table(("entry", "activity", "by", "status"), [activity_row(each) for each in told])


def _row(entry: LifecycleEntry) -> tuple[str, ...]:
    code = "" if entry.event_code is None else f" ({entry.event_code})"
    event = "" if entry.event is None else f"{entry.event}{code}"
    return str(entry.number), shown(entry.occurred_at), entry.from_state or "", entry.to_state, event, entry.actor or ""


def activity_row(activity: Activity) -> tuple[str, ...]:
    number = "" if activity.entry is None else str(activity.entry)
    return number, activity.name, activity.actor, f"{activity.status}{' (frozen)' if activity.frozen else ''}"
