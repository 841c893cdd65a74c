"""`holdfast trigger`: send an event to the instance of a reference."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.commands.machines.machines import Definition, Environment, Json, Reference, show_answer
from holdfast.cli.filters import take_since
from holdfast.cli.json_args import read_given
from holdfast.cli.target import anywhere, place


@anywhere
def trigger(
    environment: Environment,
    name: Definition,
    reference: Reference,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event, by its code or name.")],
    payload: Annotated[
        str | None, typer.Option("--payload", help="What comes with it: JSON, @file, or - for standard input.")
    ] = None,
    request_id: Annotated[
        str | None, typer.Option("--request-id", help="Sent again under the same id, it gets the same answer.")
    ] = None,
    expected: Annotated[
        int | None, typer.Option("--expected", min=0, help="It counts only at this entry: `lifecycle` of an answer.")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Of the blueprint; else the newest.")] = None,
    no_ack: Annotated[bool, typer.Option("--no-ack", help="Facts are sent once, and no answer is waited for.")] = False,
    occurred_at: Annotated[
        str | None, typer.Option("--occurred-at", help="When it happened, if not now: a moment, or how long ago.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who sends it, for the audit trail.")] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", help="What they are allowed to; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Send an event to the instance of a reference, which is made if it is not there yet.

    An event that does not apply is an answer with its reason, no error.
    """
    content, moment = read_given(payload, "--payload"), take_since(occurred_at)
    with place() as engine:
        told = engine.trigger(
            environment,
            name,
            reference,
            event,
            content,
            request_id=request_id,
            by=by,
            capabilities=tuple(capability or ()),
            expected=expected,
            version=version,
            ack_required=not no_ack,
            occurred_at=moment,
        )
    show_answer(told, json=json)
