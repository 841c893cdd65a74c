"""`holdfast contracts`: the lifecycles of documents, and how organisations fill their slots."""

from __future__ import annotations

import typer

from holdfast.cli.commands.contracts.diff import diff

contracts = typer.Typer(help="Contracts of documents: compare them and their patches.", no_args_is_help=True)
contracts.command("diff")(diff)


@contracts.callback()
def _group() -> None:
    pass
