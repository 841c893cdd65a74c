"""`holdfast workers`: which worker processes there are, where they run and what they serve. They serve all tenants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer

from holdfast.cli.render.output import say, show_json, table
from holdfast.cli.target import anywhere, place
from holdfast.store.queue.workers import WorkerProcess


@anywhere
def workers(
    all: Annotated[bool, typer.Option("--all", help="Those that left in order, too; they are kept for a day.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 200,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Worker processes of all tenants, newest first: those alive, and those that ended without a word."""
    with place() as engine:
        found = [each for each in engine.workers(limit=limit) if all or each.stopped_at is None]
    if json:
        show_json(msgspec.to_builtins(found))
    elif found:
        now = datetime.now(UTC)
        table(("host", "pid", "status", "since", "version", "app", "serves"), [_row(each, now) for each in found])
    else:
        say("There is no worker. Start `holdfast worker`.")


def _row(found: WorkerProcess, now: datetime) -> tuple[str, ...]:
    serves = [*found.handlers, *(f"call {name}" for name in found.operations), *(f"queue {q}" for q in found.queues)]
    return (
        found.host, str(found.pid), _status(found, now), f"{found.started_at:%Y-%m-%d %H:%M:%S}", found.version,
        " ".join(found.apps), ", ".join(serves),
    )  # fmt: skip


def _status(found: WorkerProcess, now: datetime) -> str:
    if found.stopped_at is not None:
        return f"left {found.stopped_at:%H:%M:%S}"
    if not found.alive:
        return f"lost {found.lease_until:%Y-%m-%d %H:%M:%S}"
    return f"alive, lease {max(0.0, (found.lease_until - now).total_seconds()):.0f} s"
