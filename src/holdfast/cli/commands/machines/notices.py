"""`holdfast notices`: what the engine has to say to operators, once or as it comes."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
import typer

from holdfast.cli.filters import take_since
from holdfast.cli.render.output import say, show_json, show_text, table
from holdfast.cli.target import Place, anywhere, place
from holdfast.errors import Refused
from holdfast.printable import printable
from holdfast.store.notices import Notice
from holdfast.views.spans import shown


@anywhere
def notices(
    follow: Annotated[bool, typer.Option("--follow", help="Print each as it comes, until interrupted.")] = False,
    code: Annotated[str | None, typer.Option(help="Only with this code, such as DEFAULT_STATE_STALE.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind: info, warn, overdue or error.")] = None,
    instance: Annotated[str | None, typer.Option(help="Only about this instance.")] = None,
    consumer: Annotated[str | None, typer.Option(help="Only about this consumer.")] = None,
    since: Annotated[str | None, typer.Option(help="Only since then: a moment, or how long ago (1h, 7d).")] = None,
    after: Annotated[str | None, typer.Option(help="The last notice seen; `next` of the page before.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; with --follow a line for each.")] = False,
) -> None:
    """Notices, newest first: retries, suspensions, stale instances, errors of the engine itself."""
    if follow and since is not None:
        raise Refused(
            "What is followed begins now, or behind --after.",
            code="FILTER_INVALID",
            hint="Leave out --since or --follow.",
        )
    with place() as engine:
        if follow:
            with contextlib.suppress(KeyboardInterrupt):
                _follow(engine, after, code, kind, instance, consumer, json=json)
            return
        moment = take_since(since)
        page = engine.notices(
            code=code, kind=kind, instance=instance, consumer=consumer, since=moment, after=after, limit=limit
        )
    if json:
        show_json({"items": [msgspec.to_builtins(each) for each in page.items], "next": page.next})
    elif page.items:
        table(("at", "kind", "code", "consumer", "message"), [_row(each) for each in page.items])
    else:
        say("There are no such notices.")


def _follow(
    engine: Place,
    after: str | None,
    code: str | None,
    kind: str | None,
    instance: str | None,
    consumer: str | None,
    *,
    json: bool,
) -> None:
    for notice in engine.follow_notices(after=after, code=code, kind=kind, instance=instance, consumer=consumer):
        if json:
            show_json(msgspec.to_builtins(notice), flush=True)
        else:
            show_text("  ".join(printable(part) for part in _row(notice) if part))


def _row(notice: Notice) -> tuple[str, ...]:
    return shown(notice.created_at), notice.kind, notice.code, notice.consumer or "", notice.message
