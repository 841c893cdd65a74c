"""`holdfast contracts`: the lifecycles of documents, and how organisations fill their slots."""

from __future__ import annotations

import typer

from holdfast.cli.commands.contracts.diff import diff
from holdfast.cli.commands.contracts.new import new
from holdfast.cli.commands.contracts.simulate import simulate

contracts = typer.Typer(help="Contracts of documents: try them and their patches, and compare.", no_args_is_help=True)
contracts.command("new")(new)
contracts.command("simulate")(simulate)
contracts.command("diff")(diff)


@contracts.callback()
def _group() -> None:
    pass
