"""`holdfast rerun`: an instance again from a chosen step, with what the step got then or with another input."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.given import read_given
from holdfast.cli.output import show as show_facts
from holdfast.cli.place import actor, anywhere, place


@anywhere
def rerun(
    instance: Annotated[str, typer.Argument(metavar="ID", help="The id of the instance.")],
    from_step: Annotated[str, typer.Option("--from", help="The step to begin at.")],
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for the audit trail.")] = None,
    input: Annotated[str | None, typer.Option("--input", help="Another input, as JSON, @file or -.")] = None,
    token: Annotated[
        str | None, typer.Option("--token", help="Which visit is meant, where several branches have been there.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="An idempotency key: the same re-run again answers the first one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run an instance again from a step; one that is over is run again as a new instance."""
    given = read_given(input)
    who = actor(by)
    with place() as engine:
        found = engine.rerun(instance, from_step=from_step, input=given, token=token, by=who, reason=reason, key=key)
    show_facts({"id": found.id, "flow": found.flow, "status": found.status, "is_new": found.id != instance}, json=json)
