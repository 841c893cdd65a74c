"""`holdfast consumers`: register them, see how far they are behind, take their facts, replay, remove."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.filters import take_moment
from holdfast.cli.json_args import read_object
from holdfast.cli.render.output import say, show, show_all, show_json, show_text, table
from holdfast.cli.target import Place, anywhere, place
from holdfast.consumer.events import Event
from holdfast.printable import printable
from holdfast.runtime.consumers.registering import BEGINNING, IN_FLIGHT, NOW, Since
from holdfast.store.consumers import ConsumerState
from holdfast.views.spans import shown, spoken

WAIT: Final = 20.0  # seconds of one poll

consumers = typer.Typer(help="Services that take the facts of machines.", no_args_is_help=True)

Environment = Annotated[str, typer.Argument(metavar="ENV", help="The environment, such as prod.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The consumer.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Way(StrEnum):
    PULL = "pull"
    PUSH = "push"


@consumers.command("list")
@anywhere
def list_(
    environment: Annotated[str | None, typer.Option("--environment", help="Only of this environment.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50,
    json: Json = False,
) -> None:
    """Consumers with their lag, and since when those that are down are."""
    with place() as engine:
        found = engine.consumers(environment, limit=limit)
    if json:
        show_all([msgspec.to_builtins(one) for one in found])
    elif found:
        table(("consumer", "way", "open", "behind", "alive"), [_row(one) for one in found])
    else:
        say("There are no consumers.")


def _row(one: ConsumerState) -> tuple[str, ...]:
    behind = "" if one.behind is None else spoken(timedelta(seconds=one.behind))
    alive = "yes" if one.down_since is None else f"down since {shown(one.down_since)}"
    return f"{one.environment}/{one.name}", one.way, str(one.open), behind, alive


@consumers.command("show")
@anywhere
def show_(environment: Environment, name: Name, json: Json = False) -> None:
    """One consumer: its settings, and how far it is behind."""
    with place() as engine:
        found = engine.get_consumer(environment, name)
    show(msgspec.to_builtins(found), json=json)


@consumers.command()
@anywhere
def register(
    environment: Environment,
    name: Name,
    definition: Annotated[
        list[str] | None, typer.Option("--definition", help="Only of this machine; repeat it.")
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only transitions into this state; repeat it.")
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help="Only transitions by this event; repeat it.")
    ] = None,
    hook: Annotated[list[str] | None, typer.Option("--hook", help="Only hooks of this code; repeat it.")] = None,
    transitions: Annotated[bool, typer.Option("--transitions/--no-transitions", help="Take transitions.")] = True,
    takes_hooks: Annotated[bool, typer.Option("--hooks/--no-hooks", help="Take hooks.")] = True,
    since: Annotated[str, typer.Option("--since", help="now, beginning, a moment, or how long ago (7d).")] = NOW,
    ttl: Annotated[float | None, typer.Option("--ttl", help="Seconds without a beat before it counts as down.")] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", help="Attempts before a fact has failed.")
    ] = None,
    in_flight: Annotated[int, typer.Option("--in-flight", help="Facts in hand at a time.")] = IN_FLIGHT,
    critical: Annotated[
        bool, typer.Option("--critical/--not-critical", help="Suspend the instance when a fact has failed.")
    ] = True,
    way: Annotated[Way, typer.Option("--way", help="Whether it polls, or is pushed to.")] = Way.PULL,
    target: Annotated[str | None, typer.Option("--target", help="Of a push: JSON with a url, @file or -.")] = None,
    json: Json = False,
) -> None:
    """Register a consumer that polls or is pushed to; again changes its settings."""
    where = read_object(target, "--target", 'Write {"url": "https://…"}.')
    with place() as engine:
        engine.register_consumer(
            environment, name, way=way.value, target=where, definitions=definition, states=state, events=event,
            hooks=hook, transitions=transitions, takes_hooks=takes_hooks, since=_since(since), ttl=ttl,
            max_attempts=max_attempts, in_flight=in_flight, critical=critical,
        )  # fmt: skip
        found = engine.get_consumer(environment, name)
    show(msgspec.to_builtins(found), json=json)


def _since(given: str) -> Since:
    known: dict[str, Since] = {NOW: NOW, BEGINNING: BEGINNING}
    return known.get(given) or take_moment(given)


@consumers.command()
@anywhere
def listen(
    environment: Environment,
    name: Name,
    keep: Annotated[bool, typer.Option("--keep", help="Answer nothing: what is printed is due again later.")] = False,
    most: Annotated[int, typer.Option("--most", min=1, help="Facts taken at a time.")] = 50,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="Leave after so many seconds.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each.")] = False,
) -> None:
    """Print facts as they become due, and answer each as processed, until interrupted."""
    with place() as engine, contextlib.suppress(KeyboardInterrupt):
        for event in _taken(engine, environment, name, most, seconds):
            if json:
                show_json(_facts(event), flush=True)
            else:
                show_text("  ".join(printable(part) for part in _line(event)))
            if not keep:
                engine.ack(environment, name, event.ack, "processed")


def _taken(engine: Place, environment: str, name: str, most: int, seconds: float | None) -> Iterator[Event]:
    ends = None if seconds is None else time.monotonic() + seconds
    while True:
        left = WAIT if ends is None else max(ends - time.monotonic(), 0.0)
        yield from engine.receive(environment, name, most=most, wait=min(left, WAIT))
        if ends is not None and time.monotonic() >= ends:
            return


def _facts(event: Event) -> dict[str, Any]:
    return {"ack": event.ack, "attempt": event.attempt, "body": msgspec.json.decode(event.raw)}


def _line(event: Event) -> tuple[str, ...]:
    what = event.hook or f"{event.from_state} → {event.to_state}"
    return shown(event.occurred_at), f"{event.definition} {event.external_ref}", event.kind, what, f"by {event.actor}"


@consumers.command()
@anywhere
def replay(
    environment: Environment,
    name: Name,
    since: Annotated[str, typer.Option("--since", help="From when on: a moment, or how long ago (1h, 7d).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    json: Json = False,
) -> None:
    """Give a consumer all its facts again from a moment on, in order."""
    moment = take_moment(since)
    with place() as engine:
        done = engine.replay_consumer(environment, name, since=moment, dry_run=dry_run)
    if json:
        show(msgspec.to_builtins(done), json=True)
    else:
        told = "would be given" if dry_run else "is given"
        say(f"{environment}/{name} {told} its facts again since {shown(done.since)}.")


@consumers.command()
@anywhere
def remove(environment: Environment, name: Name, by: By = None, json: Json = False) -> None:
    """Remove a consumer; its open deliveries end as abandoned."""
    with place() as engine:
        engine.remove_consumer(environment, name, by=by)
    show({"environment": environment, "name": name, "removed": True}, json=json)
