"""`holdfast effects`: list the outbox, and resend effects that were given up."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from holdfast.cli.render.output import say, show, show_json, table, tracked
from holdfast.cli.target import anywhere, place
from holdfast.errors import Refused
from holdfast.store.effects import Effect

effects = typer.Typer(
    help="Side effects of instances: what was sent, what came back, what is dead.", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@effects.command("list")
@anywhere
def list_(
    instance: Annotated[
        str | None, typer.Argument(metavar="[INSTANCE]", help="All effects of this instance, oldest first.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only in this status; without it, whatever was not delivered.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind: webhook, email …")] = None,
    flow: Annotated[str | None, typer.Option(help="Only of instances of this flow.")] = None,
    after: Annotated[str | None, typer.Option(help="The last effect of the page before.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many.")] = 50,
    json: Json = False,
) -> None:
    """Effects that were not delivered, newest first; or those of one instance."""
    if instance is None:
        found = _page(status, kind, flow, after, limit)
    elif status or kind or flow or after:
        raise Refused(
            "An instance's effects are listed whole.",
            code="FILTER_INVALID",
            hint="Leave out the instance, or --status, --kind, --flow and --after.",
        )
    else:
        with place() as engine:
            found = engine.effects(instance)
    if json:
        show_json([msgspec.to_builtins(effect) for effect in found])
    elif found:
        table(("id", "status", "attempts", "kind", "target"), [_row(effect) for effect in found])
    else:
        say("There are no such effects." if instance is None else "The instance has no effects.")


@effects.command("show")
@anywhere
def show_(
    effect: Annotated[str, typer.Argument(metavar="EFFECT", help="The effect's id.")],
    json: Json = False,
) -> None:
    """One effect with what it was asked to do and the evidence of its last attempt."""
    with place() as engine:
        show(msgspec.to_builtins(engine.get_effect(effect)), json=json)


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
        show_json({"replayed": [one.id for one in replayed]})
    else:
        say(f"{len(replayed)} effect{'' if len(replayed) == 1 else 's'} will be delivered again.")


def _row(effect: Effect) -> tuple[str, ...]:
    problem = f"  {effect.error['code']}" if effect.error else ""
    attempts = f"{effect.attempts} of {effect.max_attempts}"
    return effect.id, effect.status, attempts, effect.kind, f"{effect.target}{problem}"


def _page(status: str | None, kind: str | None, flow: str | None, after: str | None, limit: int) -> list[Effect]:
    """Fill one page from several of the engine's: a short one need not be the last."""
    found: list[Effect] = []
    with place() as engine:
        while True:
            page = engine.list_effects(status=status, kind=kind, flow=flow, after=after, limit=limit - len(found))
            found += page.items
            after = page.next
            if after is None or len(found) >= limit:
                return found
