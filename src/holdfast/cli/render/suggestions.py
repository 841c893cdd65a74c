"""Draw the suggestions for an instance on a terminal; a command is never cut, so that it can be copied."""

from __future__ import annotations

from rich.text import Text

from holdfast.cli.render.output import fit
from holdfast.printable import printable
from holdfast.views.record import Record
from holdfast.views.suggestions import suggestions


def remedies(record: Record, width: int) -> list[Text]:
    return [
        Text.assemble((fit(about, width), "dim"), f"\n  {printable(command)}") for about, command in suggestions(record)
    ]
