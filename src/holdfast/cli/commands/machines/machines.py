"""`holdfast machines`: import them, look at them, try them, show their instances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from holdfast.cli.filters import take_since
from holdfast.cli.json_args import read_list, read_object
from holdfast.cli.render.output import say, show, show_all, show_json, show_text, table, warn
from holdfast.cli.target import anywhere, place
from holdfast.errors import NotFound, Refused
from holdfast.runtime.machines.machine import Machine
from holdfast.runtime.machines.simulation import SimulatedEntry, Simulation, Tried
from holdfast.runtime.machines.triggers import TriggerResult
from holdfast.views.spans import shown

PAYLOADS_HINT: Final = 'Write [{"amount": 5}, null].'

machines = typer.Typer(
    help="Machines: import them, look at them, try them, see where they stand.", no_args_is_help=True
)

Environment = Annotated[str, typer.Argument(metavar="ENV", help="The environment, such as prod.")]
Definition = Annotated[str, typer.Argument(metavar="NAME", help="The machine.")]
Reference = Annotated[str, typer.Argument(metavar="REF", help="The business object.")]
File = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The blueprint of a machine not imported.")]
PolicyFile = Annotated[Path | None, typer.Option("--policy", metavar="FILE", help="Its policy.")]
Version = Annotated[int | None, typer.Option("--version", min=1, help="This version; else the newest.")]
By = Annotated[str | None, typer.Option("--by", help="Who does it, for the audit trail.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@machines.command("import")
@anywhere
def import_(
    blueprint: Annotated[
        Path | None, typer.Argument(metavar="[BLUEPRINT]", help="Its file; one document may hold both.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Its policy; alone, for the newest blueprint.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option("--environment", help="Of a policy alone: the environment of its machine.")
    ] = None,
    by: By = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check; nothing is stored.")] = False,
    json: Json = False,
) -> None:
    """Import a machine, or a policy for the newest blueprint; one problem and nothing is stored."""
    if blueprint is None and policy is None:
        raise Refused("There is nothing to import.", code="MACHINE_MISSING", hint="Name a blueprint, or --policy.")
    machine = None if blueprint is None else Machine.load(blueprint, policy)
    with place() as engine:
        done = engine.import_machine(
            machine, None if machine else policy, environment=environment, by=by, dry_run=dry_run
        )
    if json:
        show(msgspec.to_builtins(done), json=True)
        return
    for warning in () if machine is None else machine.warnings:
        warn(str(warning))
    told = "new" if done.new else "unchanged"
    say(f"{done.name} version {done.version}: {told}{', nothing was stored' if dry_run else ''}")


@machines.command("list")
@anywhere
def list_(
    environment: Annotated[str | None, typer.Option("--environment", help="Only of this environment.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50,
    json: Json = False,
) -> None:
    """Machines by name, each in its newest version."""
    with place() as engine:
        found = engine.page_machines(environment, limit=limit)
    if json:
        show_all([msgspec.to_builtins(one) for one in found])
    elif found:
        table(
            ("machine", "version", "published", "by"),
            [(one.name, str(one.version), shown(one.published_at), one.created_by or "") for one in found],
        )
    else:
        say("There are no machines.")


@machines.command("show")
@anywhere
def show_(environment: Environment, name: Definition, version: Version = None, json: Json = False) -> None:
    """One version of a machine: its states and events; as JSON also the documents it was imported from."""
    with place() as engine:
        told = engine.describe_machine(environment, name, version)
    if json:
        show(msgspec.to_builtins(told), json=True)
        return
    show(
        {
            "machine": f"{told.environment}.{told.definition}",
            "version": told.version,
            "blueprint": f"version {told.blueprint_version}",
            "policy": told.policy_name or ("none" if told.policy is None else "without a name"),
            "published": shown(told.published_at),
        },
        json=False,
    )
    states = [
        (one.name, one.category or "", _role(is_initial=one.is_initial, is_final=one.is_final)) for one in told.states
    ]
    table(("state", "category", ""), states)
    table(("code", "event"), [(str(one.code), one.name) for one in told.events])


def _role(*, is_initial: bool, is_final: bool) -> str:
    return "initial" if is_initial else "final" if is_final else ""


@machines.command()
@anywhere
def chart(
    machine: Annotated[list[str] | None, typer.Argument(metavar="ENV NAME", help="The machine.")] = None,
    version: Version = None,
    file: File = None,
    policy: PolicyFile = None,
) -> None:
    """Draw a machine as a Mermaid state diagram; with --file one that is not imported."""
    words = machine or []
    found = _read(words, version, file, policy)
    _check_rest(words[0 if file else 2 :])
    show_text(found.chart().rstrip("\n"))


@machines.command()
@anywhere
def simulate(
    machine: Annotated[
        list[str] | None, typer.Argument(metavar="ENV NAME EVENT...", help="The machine, and events by code or name.")
    ] = None,
    version: Version = None,
    file: File = None,
    policy: PolicyFile = None,
    payloads: Annotated[
        str | None, typer.Option("--payloads", help="A list with the payload of each event: JSON, @file or -.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="What the instance knows at first: JSON, @file or -.")
    ] = None,
    capability: Annotated[
        list[str] | None, typer.Option("--capability", help="What the sender may do; may be repeated.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", help="The time that conditions see; else now.")] = None,
    json: Json = False,
) -> None:
    """Send events to an instance that exists only in the answer; with --file no database is asked."""
    words = machine or []
    found = _read(words, version, file, policy)
    events = _tried(words[0 if file else 2 :], read_list(payloads, "--payloads", PAYLOADS_HINT))
    known = read_object(data, "--data", 'Write {"amount": 5}.')
    done = found.simulate(events, capabilities=tuple(capability or ()), now=take_since(now), data=known)
    if json:
        show_json({**msgspec.to_builtins(done), "state": done.state, "states": done.states})
    else:
        _print(done)


def _read(words: Sequence[str], version: int | None, file: Path | None, policy: Path | None) -> Machine:
    """The machine of a file, or one that is imported."""
    if file is not None:
        return Machine.load(file, policy)
    if len(words) < 2 or policy is not None:
        raise Refused(
            "Which machine is meant?",
            code="MACHINE_NOT_NAMED",
            hint="Write its environment and name, or --file with its blueprint and --policy with its policy.",
        )
    with place() as engine:
        told = engine.describe_machine(words[0], words[1], version)
    return Machine.load(told.blueprint, told.policy)


def _check_rest(words: Sequence[str]) -> None:
    if words:
        raise typer.BadParameter(f"Got unexpected extra arguments ({' '.join(words)}).")


def _tried(events: Sequence[str], payloads: list[Any] | None) -> list[Tried]:
    """The events with their payloads. Numbers are codes: no event has a name like one."""
    given: list[Any] = [None] * len(events) if payloads is None else payloads
    if len(given) != len(events):
        raise Refused(f"--payloads is no list of {len(events)}.", code="INPUT_NOT_JSON", hint=PAYLOADS_HINT)
    return [
        (int(event) if event.isascii() and event.isdigit() else event, payload)
        for event, payload in zip(events, given, strict=True)
    ]


def _print(done: Simulation) -> None:
    table(("event", "from", "to", "hooks", ""), [_row(entry) for entry in done.entries])
    say(f"It {'ends' if done.is_over else 'stands'} in {done.state}.")


def _row(entry: SimulatedEntry) -> tuple[str, ...]:
    hooks = ", ".join(hook.code for hook in entry.hooks)
    return f"{entry.event} ({entry.code})", entry.from_state, entry.to_state, hooks, entry.reason or ""


# --- their instances --------------------------------------------------------------------------------------------------


@machines.command()
@anywhere
def where(environment: Environment, name: Definition, reference: Reference, json: Json = False) -> None:
    """Show the instance of a reference: its state, its last event, its open gates."""
    with place() as engine:
        found = engine.machine(environment, name, reference)
    if json:
        show(msgspec.to_builtins(found), json=True)
        return
    show(
        {
            "instance": found.id,
            "state": found.state,
            "status": found.status,
            "reason": found.reason,
            "lifecycle": found.lifecycle,
            "last event": found.last_event,
            "blocked by": ", ".join(found.blocked_by) or None,
            "open acks": found.open_acks,
        },
        json=False,
    )


@machines.command()
@anywhere
def backfill(
    environment: Environment,
    name: Definition,
    reference: Reference,
    events: Annotated[
        str, typer.Option("--events", help="Its past, a list of {event, occurred_at, payload, by}: JSON, @file or -.")
    ],
    version: Annotated[int | None, typer.Option("--version", min=1, help="Of the blueprint; else the newest.")] = None,
    by: By = None,
    json: Json = False,
) -> None:
    """Give an object that is new to its machine the past it has, all of it or nothing, without facts."""
    past = read_list(events, "--events", 'Write [{"event": "Pay", "occurred_at": "2026-01-31T08:00:00+00:00"}].') or []
    with place() as engine:
        show_answer(engine.backfill(environment, name, reference, past, by=by, version=version), json=json)


@machines.command()
@anywhere
def answer(
    environment: Environment,
    name: Definition,
    reference: Reference,
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="The request id of a trigger.")],
    json: Json = False,
) -> None:
    """The answer a trigger got under its request id."""
    with place() as engine:
        found = engine.trigger_answer(environment, name, reference, request)
    if found is None:
        raise NotFound(
            "No trigger of this reference has an answer under this request id.",
            code="TRIGGER_UNKNOWN",
            hint="One in a transaction of its own has none before that has committed and a worker has decided it.",
        )
    show_answer(found, json=json)


def show_answer(found: TriggerResult, *, json: bool) -> None:
    facts = msgspec.to_builtins(found)
    show(facts if json else {name.replace("_", " "): value for name, value in facts.items()}, json=json)
