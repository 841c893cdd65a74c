"""`holdfast contracts simulate`: the way of a document through a contract and a patch, of a file or published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, cast

import msgspec
import typer

from holdfast.cli.commands.contracts.diff import read_side
from holdfast.cli.json_args import read_list, read_object
from holdfast.cli.render.output import say, show_json
from holdfast.cli.target import anywhere, place
from holdfast.doors.durations import read_duration
from holdfast.doors.envelope import load_contracts
from holdfast.errors import Refused
from holdfast.runtime.envelopes.files import compile_file
from holdfast.runtime.envelopes.script import Arrive, CallVerb, Decide, Edit, Elapse, Input
from holdfast.runtime.envelopes.sides import DRAFT, After, check_side
from holdfast.runtime.envelopes.simulation import simulate as run_simulation

FAILED: Final = 1
DECISIONS: Final = ("approved", "rejected")
_HINT: Final = "Write a verb, NODE=approved, NODE=rejected, edit={…}, event=NAME, event=NAME:KEY or wait=3d."


@anywhere
def simulate(
    target: Annotated[
        str, typer.Argument(metavar="FILE|TYPE", help="A file with a contract, a patch and tables; a published type.")
    ],
    document: Annotated[str, typer.Option(metavar="JSON", help="The document's fields, or @FILE.")] = "{}",
    do: Annotated[
        list[str] | None, typer.Option("--do", metavar="INPUT", help=f"What happens, in order. {_HINT}")
    ] = None,
    script: Annotated[str | None, typer.Option(metavar="JSON", help="The same as a list of objects, or @FILE.")] = None,
    type: Annotated[str | None, typer.Option(help="The type of the documents, if the file has several.")] = None,
    org: Annotated[str | None, typer.Option(metavar="JSON", help="The settings of the organisation.")] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="VERSION|draft", help="Of the published patch, or its draft; else the graph in force."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send a document through a contract and its patch in memory, and tell its way: each step, and why it was taken.

    Exit code 1 if an input is refused.
    """
    hint = "Write the fields as a JSON object."
    inputs = [*_script(script), *(read_input(text) for text in do or ())]
    fields, settings = read_object(document, "--document", hint) or {}, read_object(org, "--org", hint)
    file, side = Path(target), None if version is None else cast("After", read_side(version))
    check_side(side, "--version", DRAFT)
    if file.is_file():
        if version is not None:
            raise typer.BadParameter("--version belongs to a published type: a file has one version.")
        read = load_contracts(file.read_text(encoding="utf-8"), name=target)
        found = run_simulation(compile_file(read, type=type), fields, inputs, org=settings)
    else:
        if type is not None:
            raise typer.BadParameter("--type belongs to a file with several contracts.")
        with place() as engine:
            found = engine.simulate_document(target, fields, inputs, version=side, settings=settings)
    if json:
        show_json(msgspec.to_builtins(found))
    else:
        for line in found.lines():
            say(line)
    if found.refused:
        raise typer.Exit(FAILED)


def read_input(text: str) -> Input:
    """Read one input as it is written on the command line."""
    name, equals, value = text.partition("=")
    if not equals:
        return CallVerb(verb=text)
    if name == "edit":
        return Edit(fields=read_object(value, "--do edit", "Write the new values as a JSON object.") or {})
    if name == "event":
        event, colon, key = value.partition(":")
        return Arrive(event=event, key=key if colon else None)
    if name == "wait" and (seconds := read_duration(value)) is not None:
        return Elapse(seconds=seconds)
    if value in DECISIONS:
        return Decide(node=name, decision=value)
    raise Refused(f"--do {text!r} is no input.", code="INPUT_INVALID", hint=_HINT)


def _script(text: str | None) -> list[Input]:
    given = read_list(text, "--script", 'Write a list such as [{"do": "verb", "verb": "submit"}].') or []
    try:
        return msgspec.convert(given, list[Input])
    except msgspec.ValidationError as error:
        raise Refused(f"--script cannot be read: {error}.", code="INPUT_INVALID", hint=_HINT) from None
