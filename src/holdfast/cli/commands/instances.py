"""`holdfast list`, also called `instances`: which runs there are. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from holdfast.cli.filters import which_instances
from holdfast.cli.render.output import say, table
from holdfast.cli.render.output import show as show_facts
from holdfast.cli.target import anywhere, place
from holdfast.runtime.reads.search import InstanceFilter
from holdfast.runtime.reads.views import Page
from holdfast.store.reads.instances import Instance
from holdfast.views.labels import error_words

_TROUBLED: Final = frozenset({"failed", "dlq", "rolling_back", "suspended"})


@anywhere
@which_instances
def instances(
    filter: InstanceFilter,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="Where the page before ended.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List instances, newest first; failed, cancelled or aborted ones in a period by their end."""
    with place() as engine:
        page = engine.find(filter, after=after, limit=limit)
    if json:
        show_facts(msgspec.to_builtins(page), json=True)
    else:
        _show(page)


def _show(page: Page) -> None:
    if page.items:
        table(
            ("id", "flow", "status", "started", "about"),
            [(i.id, f"{i.flow} v{i.flow_version}", i.status, _started(i), _about(i)) for i in page.items],
        )
    if page.next is not None:
        say(f"There are more: --after {page.next}" if page.items else f"None so far; look on: --after {page.next}")
    elif not page.items:
        say("There are no such instances.")


def _started(instance: Instance) -> str:
    return "" if instance.created_at is None else f"{instance.created_at:%Y-%m-%d %H:%M}"


def _about(instance: Instance) -> str:
    """Describe an instance: its key, and the wait or the error."""
    told = [instance.business_key or instance.key or ""]
    if instance.status in _TROUBLED:
        told.append(instance.reason or "")
        told.append(error_words(instance.error) if instance.error is not None else "")
    elif instance.waiting_for:
        told.append(f"waits: {instance.waiting_for}")
    return "  ".join(part for part in told if part)
