"""`holdfast start`: begin an instance, and on request wait until it rests."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.completion import complete_flow
from holdfast.cli.json_args import read_attributes, read_given
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.render.output import show_text
from holdfast.cli.target import anywhere, place
from holdfast.core.model.status import TERMINAL
from holdfast.store.reads.instances import Instance
from holdfast.views.labels import error_words

STILL_RUNNING: Final = 10
ENDED_BADLY: Final = 11


@anywhere
def start(
    flow: Annotated[str, typer.Argument(metavar="FLOW", help="The name of the flow.", autocompletion=complete_flow)],
    input: Annotated[
        str | None, typer.Option("--input", help="What it begins with: JSON, @file, or - for standard input.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Idempotency key: the same key is the same instance.")
    ] = None,
    business_key: Annotated[
        str | None, typer.Option("--business-key", help="A name by which it is found again.")
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", help="NAME=VALUE to find it by; may be repeated.")
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=1, max=2**31 - 1, metavar="N", help="This version; else the newest.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who starts it, for the audit trail.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it rests on somebody, waits, or is over.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="With --wait: for so many seconds at most.")] = 60,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but its id.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Start an instance. With --wait, exit code 10: it still runs; 11: it ended otherwise than completed."""
    given, attributes = read_given(input), read_attributes(attribute or ())
    with place() as engine:
        found = engine.start(
            flow, given, key=key, version=version, business_key=business_key, attributes=attributes, by=by
        )
        is_late = False
        if wait:
            began = time.monotonic()
            found = engine.settle(found.id, timeout)
            is_late = time.monotonic() - began >= timeout
    if quiet:
        show_text(found.id)
    else:
        show_instance(found, json=json)
    if wait and found.status in TERMINAL and found.status != "completed":
        raise typer.Exit(ENDED_BADLY)
    if is_late and found.status not in TERMINAL:
        raise typer.Exit(STILL_RUNNING)


def show_instance(instance: Instance, *, json: bool) -> None:
    """An instance after something was done to it."""
    if json:
        show_facts(msgspec.to_builtins(instance), json=True)
        return
    is_completed = instance.status == "completed"  # then an error is one that a step was allowed to have
    facts: dict[str, Any] = {
        "instance": instance.id,
        "flow": f"{instance.flow} version {instance.flow_version}",
        "status": instance.status.replace("_", " "),
        "waits for": "a person" if instance.waiting_for == "task" else instance.waiting_for,
        "reason": instance.reason,
        "error": error_words(instance.error) if instance.error is not None and not is_completed else None,
        "result": msgspec.json.encode(instance.data).decode() if is_completed else None,
    }
    show_facts(facts, json=False)
