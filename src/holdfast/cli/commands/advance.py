"""`holdfast advance`: what a person does at a step of a process: approve, reject, hand in a form."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.commands.start import show_instance
from holdfast.cli.json_args import read_given
from holdfast.cli.target import actor, anywhere, place


@anywhere
def advance(
    instance: Annotated[str, typer.Argument(metavar="ID", help="The instance's id.")],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="What is done: approved, rejected, completed, …")],
    input: Annotated[
        str | None, typer.Option("--input", help="What was filled in: JSON, @file, or - for standard input.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", help="What they are allowed to; may be repeated. Else anything.")
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", help="A role they have; may be repeated. Else any.")
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", help="A remark for the audit trail.")] = None,
    if_version: Annotated[
        int | None, typer.Option("--if-version", help="Only if the instance still has this version.")
    ] = None,
    wait: Annotated[
        float, typer.Option("--wait", min=0, help="Seconds to wait for the automatic steps that follow.")
    ] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take an instance on from the step it rests at; automatic steps that follow are waited for."""
    given, who = read_given(input), actor(by)
    with place() as engine:
        found = engine.advance(
            instance, event, given, by=who, capabilities=capability, roles=role, comment=comment, if_version=if_version
        )
        if wait:
            found = engine.settle(found.id, wait)
    show_instance(found, json=json)
