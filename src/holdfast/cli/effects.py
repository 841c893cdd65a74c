"""`holdfast effects`: look at the outbox of an instance, and let what was given up on be delivered again."""

from __future__ import annotations

import json as text_json
from typing import Annotated

import msgspec
import typer

from holdfast.cli.output import say, show, table, tracked
from holdfast.cli.place import anywhere, place
from holdfast.errors import NotFound
from holdfast.store.effects import Effect

effects = typer.Typer(
    help="Side effects of instances: what was sent, what came back, what is dead.", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
InstanceId = Annotated[str, typer.Argument(metavar="INSTANCE", help="The instance's id.")]


@effects.command("list")
@anywhere
def list_(instance: InstanceId, json: Json = False) -> None:
    """The effects of an instance, oldest first."""
    found = _list(instance)
    if json:
        print(text_json.dumps([msgspec.to_builtins(effect) for effect in found], default=str))
        return
    if found:
        table(("id", "status", "attempts", "kind", "target"), [_row(effect) for effect in found])
    else:
        say("The instance has no effects.")


@effects.command("show")
@anywhere
def show_(
    instance: InstanceId,
    effect: Annotated[str, typer.Argument(metavar="EFFECT", help="The effect's id.")],
    json: Json = False,
) -> None:
    """One effect with what it was asked to do and the evidence of its last attempt."""
    found = next((one for one in _list(instance) if one.id == effect), None)
    if found is None:
        raise NotFound(
            f"The instance {instance} has no effect {effect}.",
            code="EFFECT_UNKNOWN",
            hint="`holdfast effects list INSTANCE` shows those it has.",
        )
    show(msgspec.to_builtins(found), json=json)


@effects.command()
@anywhere
def replay(
    effect: Annotated[list[str], typer.Argument(metavar="EFFECT...", help="The ids of dead effects.")],
    by: Annotated[str | None, typer.Option(help="Who wants it; stands in the audit trail.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; stands in the audit trail.")] = None,
    json: Json = False,
) -> None:
    """Deliver dead effects again, under the same key; a worker takes them on."""
    with place() as engine:
        replayed = [engine.replay_effect(id, by=by, reason=reason) for id in tracked(effect, len(effect), "replay")]
    if json:
        print(text_json.dumps({"replayed": [one.id for one in replayed]}))
    else:
        say(f"{len(replayed)} effect{'' if len(replayed) == 1 else 's'} will be delivered again.")


def _row(effect: Effect) -> tuple[str, ...]:
    problem = f"  {effect.error['code']}" if effect.error else ""
    attempts = f"{effect.attempts} of {effect.max_attempts}"
    return effect.id, effect.status, attempts, effect.kind, f"{effect.target}{problem}"


def _list(instance: str) -> list[Effect]:
    with place() as engine:
        return engine.effects(instance)
