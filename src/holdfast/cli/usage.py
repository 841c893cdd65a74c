"""A command line that cannot be read. For people Typer draws it, for scripts it is an error like others."""

from __future__ import annotations

from typing import Any, Final, cast

import typer

from holdfast.errors import HoldfastError

# What every complaint of Typer about a command line is. It has no public name that all versions know: the click that it
# comes from is another package in some of them, and a part of Typer in others.
MISUSE: Final = cast("type[Exception]", typer.BadParameter.__mro__[2])


class CommandLineInvalid(HoldfastError):
    """The command line cannot be read."""

    code = "COMMAND_LINE_INVALID"
    exit_code = 2


def command_line_invalid(misuse: Exception) -> CommandLineInvalid:
    said = cast(Any, misuse)
    return CommandLineInvalid(said.format_message(), hint="`--help` of the command lists what it takes.")
