"""`holdfast signal`: send an event to one instance, or to all waits with a key."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.commands.start import show_instance
from holdfast.cli.json_args import read_given
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import anywhere, place
from holdfast.errors import Refused


@anywhere
def signal(
    recipient: Annotated[
        list[str], typer.Argument(metavar="[ID] EVENT", help="The instance it is for, and the name of the event.")
    ],
    key: Annotated[
        str | None, typer.Option("--key", help="Instead of an id: everybody who waits with this key.")
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", help="What comes with it: JSON, @file, or - for standard input.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="A UUID of yours: sent again, it counts once.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="The step it is for, where several wait for it.")] = None,
    no_early: Annotated[
        bool, typer.Option("--no-early", help="Refuse it where no step waits for it now, instead of keeping it.")
    ] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who sends it, for the audit trail.")] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", help="What they are allowed to; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send an event to an instance; answered when it is committed."""
    *ids, event = recipient
    if len(ids) != (key is None):
        raise Refused(
            "An event is for one instance, or for everybody who waits with a key.",
            code="RECIPIENT_NOT_NAMED",
            hint="Write `holdfast signal ID EVENT`, or `holdfast signal EVENT --key KEY`.",
        )
    payload = read_given(input)
    with place() as engine:
        if key is not None:
            show_facts({"event": event, "id": engine.signal_key(event, key, payload, id=id, by=by)}, json=json)
            return
        capabilities = tuple(capability or ())
        found = engine.signal(
            ids[0], event, payload, node=node, id=id, by=by, capabilities=capabilities, early=not no_early
        )
    show_instance(found, json=json)
