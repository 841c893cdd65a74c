"""Draw the summary of an instance on a terminal: a fact per line, cut to its width."""

from __future__ import annotations

from typing import Final

from rich.text import Text

from holdfast.cli.render.output import fit
from holdfast.views.record import Record
from holdfast.views.summary import facts_of

STYLES: Final = {
    "completed": "green",
    "failed": "bold red",
    "dlq": "bold red",
    "suspended": "yellow",
    "rolling_back": "bold magenta",
    "cancelled": "magenta",
    "aborted": "magenta",
}
_BY_NAME: Final = {"instance": "bold", "rollback": "magenta", "error": "red", "last error": "red"}


def summary(record: Record, width: int) -> list[Text]:
    facts = list(facts_of(record))
    styles = {**_BY_NAME, "status": STYLES.get(record.instance.status, "cyan")}
    column = max(len(fact.name) for fact in facts)
    return [
        Text.assemble(
            (fact.name.ljust(column), "dim"), "  ", (fit(fact.value, width - column - 2), styles.get(fact.name, ""))
        )
        for fact in facts
    ]
