"""`holdfast stuck`: instances that nothing moves any more, and what an operator can do about them."""

from __future__ import annotations

import asyncio
import json as text_json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from holdfast.cli.filters import AllTenants
from holdfast.cli.render.output import say, show, show_json
from holdfast.runtime.engine import Engine

T = TypeVar("T")

stuck = typer.Typer(help="Find instances that nothing moves any more, and repair them.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="INSTANCE", help="The id of the instance.")]
By = Annotated[str, typer.Option("--by", help="Who does it, for the audit trail.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why, for the audit trail.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@stuck.command("list")
def list_(
    minutes: Annotated[float, typer.Option(min=0, help="Without any change for at least this long.")] = 10.0,
    after: Annotated[str | None, typer.Option(help="The last id of the page before.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Instances per page.")] = 50,
    all_tenants: AllTenants = False,
    json: Json = False,
) -> None:
    """Unfinished instances with nothing queued that could move them."""
    found = _with_engine(
        lambda engine: engine.stuck(older_than=minutes * 60, after=after, limit=limit, all_tenants=all_tenants)
    )
    if json:
        show_json(msgspec.to_builtins(found))
        return
    for instance in found:
        lacks = ", ".join(f"{m.missing}{f' of {m.node}' if m.node else ''}" for m in instance.missing)
        since = f"{instance.updated_at:%Y-%m-%d %H:%M}"
        facts = [instance.tenant] if all_tenants else []
        say("  ".join([*facts, instance.id, instance.flow, instance.status, since, f"lacks {lacks}"]))
    if not found:
        say("Nothing is stuck.")


@stuck.command()
def requeue(instance: Id, by: By, reason: Reason = None, json: Json = False) -> None:
    """Put the open steps, timers and news it waits for back into the queues."""
    done = _with_engine(lambda engine: engine.reenqueue(instance, by=by, reason=reason))
    show(_facts(done, json), json=json)


@stuck.command()
def rebuild(
    instance: Id,
    by: By,
    reason: Reason = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    json: Json = False,
) -> None:
    """Make its snapshot anew from its steps; refused when anything would be lost."""
    done = _with_engine(lambda engine: engine.rebuild(instance, by=by, reason=reason, dry_run=dry_run))
    show(_facts(done, json), json=json)


@stuck.command()
def fail(instance: Id, by: By, reason: Reason = None, json: Json = False) -> None:
    """End it as failed."""
    done = _with_engine(lambda engine: engine.force_fail(instance, by=by, reason=reason))
    show({"id": done.id, "status": done.status, "reason": done.reason}, json=json)


def _facts(done: msgspec.Struct, json: bool) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(done)
    return facts if json else {name: text_json.dumps(value, default=str) for name, value in facts.items()}


def _with_engine(act: Callable[[Engine], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Engine() as engine:
            return await act(engine)

    return asyncio.run(run())
