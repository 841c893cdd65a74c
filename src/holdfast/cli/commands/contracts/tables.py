"""`holdfast contracts tables`: the decision tables that patches may name."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from holdfast.cli.render.output import say, show_all, show_json, show_text, table
from holdfast.cli.target import anywhere, place
from holdfast.doors.envelope.decision_tables.builder import table_yaml
from holdfast.views.spans import shown


@anywhere
def tables(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="This table, as YAML.")] = None,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Of the table; else the newest.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decision tables by name, each in its newest version; with a name that table."""
    if name is not None:
        with place() as engine:
            one = engine.table(name, version)
        if json:
            show_json(msgspec.to_builtins(one))
        else:
            show_text(table_yaml(one.table).rstrip("\n"))
        return
    with place() as engine:
        found = engine.tables(limit=limit)
    if json:
        show_all([msgspec.to_builtins(one) for one in found])
    elif found:
        rows = [(one.name, str(one.version), one.org, shown(one.published_at), one.created_by) for one in found]
        table(("table", "version", "of", "published", "by"), rows)
    else:
        say("There are no decision tables.")
