"""Ask before many things are changed at once: a filter may mean more than its author thinks."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.errors import Refused

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before many are changed.")]


def confirm(count: int, verb: str, noun: str = "instance", *, yes: bool) -> None:
    """Ask for a confirmation: refuse without a terminal, exit if the answer is no."""
    if yes or not count:
        return
    if not sys.stdin.isatty():
        raise Refused(
            f"{verb} would change {counted(count, noun)}, and nobody is here to confirm it.",
            code="CONFIRMATION_NEEDED",
            hint="Look with --dry-run, then add --yes.",
        )
    typer.confirm(f"{verb} {counted(count, noun)}?", abort=True)


def counted(count: int, noun: str = "instance") -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
