"""`holdfast instances`: which runs there are. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from holdfast.cli.output import say, table
from holdfast.cli.output import show as show_facts
from holdfast.cli.spans import take_since
from holdfast.cli.wording import error_words
from holdfast.runtime.sync import SyncEngine
from holdfast.runtime.views import Page
from holdfast.store.reads import Instance

_TROUBLED: Final = frozenset({"failed", "dlq", "rolling_back", "suspended"})


def instances(
    flow: Annotated[str | None, typer.Option("--flow", help="Only of this flow.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="Only in this status.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only those started with this idempotency key.")] = None,
    business_key: Annotated[
        str | None, typer.Option("--business-key", help="Only those with this business key.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only those started since: 90m, 3d, 2026-01-31T08:00.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="The last one of the page before.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Instances, newest first."""
    moment = take_since(since)
    with SyncEngine() as engine:
        page = engine.list(
            flow=flow, status=status, key=key, business_key=business_key, since=moment, after=after, limit=limit
        )
    if json:
        show_facts(msgspec.to_builtins(page), json=True)
    elif not page.items:
        say("There are no such instances.")
    else:
        _show(page)


def _show(page: Page) -> None:
    table(
        ("id", "flow", "status", "started", "about"),
        [(i.id, f"{i.flow} v{i.flow_version}", i.status, _started(i), _about(i)) for i in page.items],
    )
    if page.next is not None:
        say(f"There are more: --after {page.next}")


def _started(instance: Instance) -> str:
    return "" if instance.created_at is None else f"{instance.created_at:%Y-%m-%d %H:%M}"


def _about(instance: Instance) -> str:
    """Its key, and what it waits for or what went wrong."""
    told = [instance.business_key or instance.key or ""]
    if instance.status in _TROUBLED:
        told.append(instance.reason or "")
        told.append(error_words(instance.error) if instance.error is not None else "")
    elif instance.waiting_for:
        told.append(f"waits: {instance.waiting_for}")
    return "  ".join(part for part in told if part)
