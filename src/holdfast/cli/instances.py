"""`holdfast list`, also called `instances`: which runs there are. The organisation is HOLDFAST_ORG."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import typer

from holdfast.cli.completion import complete_flow, complete_status
from holdfast.cli.given import read_attributes
from holdfast.cli.output import say, table
from holdfast.cli.output import show as show_facts
from holdfast.cli.place import anywhere, place
from holdfast.cli.spans import take_since
from holdfast.cli.wording import error_words
from holdfast.runtime.views import Page
from holdfast.store.reads import Instance

_TROUBLED: Final = frozenset({"failed", "dlq", "rolling_back", "suspended"})


@anywhere
def instances(
    flow: Annotated[str | None, typer.Option("--flow", help="Only of this flow.", autocompletion=complete_flow)] = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Only in this status.", autocompletion=complete_status)
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only those started with this idempotency key.")] = None,
    business_key: Annotated[
        str | None, typer.Option("--business-key", help="Only those with this business key.")
    ] = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", help="Only with this NAME=VALUE; all of several must fit.")
    ] = None,
    started_by: Annotated[str | None, typer.Option("--started-by", help="Only what this person started.")] = None,
    parent: Annotated[str | None, typer.Option("--parent", help="Only the sub-flows of this instance.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only those started since: 90m, 3d, 2026-01-31T08:00.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most this many.")] = 50,
    after: Annotated[str | None, typer.Option("--after", help="The last one of the page before.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Instances, newest first."""
    moment, attributes = take_since(since), read_attributes(attribute or ())
    with place() as engine:
        page = engine.list(
            flow=flow, status=status, key=key, business_key=business_key, subject_id=started_by,
            attributes=attributes, parent=parent, since=moment, after=after, limit=limit,
        )  # fmt: skip
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
