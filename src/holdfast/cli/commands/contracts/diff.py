"""`holdfast contracts diff`: compare two files of a contract and a patch, with no database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.commands.validate import FAILED, read_files, tell
from holdfast.cli.render.output import show_json, show_text
from holdfast.cli.render.pages import write_page
from holdfast.doors.envelope import ContractDefinition, ContractFile, PatchDefinition
from holdfast.doors.envelope.decision_tables.building import pin_table
from holdfast.doors.envelope.effective import compile_effective, compile_envelope
from holdfast.doors.envelope.tables import Tables
from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled
from holdfast.graph.difference.compare import difference
from holdfast.views.difference_page import difference_page
from holdfast.views.difference_text import difference_text


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A file of a contract, with a patch or without.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The same; without a contract it takes the other's.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of HTML with both drawings.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two files: the changes of the contract and of each slot. No database is needed."""
    first, second = _compiled(_read(before), _read(after))
    names = (str(before), str(after))
    found = difference(first, second)
    if html is not None:
        write_page(html, difference_page(first, second, names))
    if json:
        show_json(msgspec.to_builtins(found))
    elif html is None:
        show_text(difference_text(found, names).rstrip("\n"))


class _Written(msgspec.Struct, frozen=True):
    file: Path
    contract: ContractDefinition | None
    patch: PatchDefinition | None
    tables: Tables


def _read(path: Path) -> _Written:
    found = read_files([path])
    tell(found.problems)
    if any(problem.severity == "error" for problem in found.problems):
        raise typer.Exit(FAILED)
    contracts = [each for file in found.contracts for each in file.contracts]
    patches = [each for file in found.contracts for each in file.patches]
    if len(contracts) > 1 or len(patches) > 1 or not (contracts or patches):
        raise _unclear(path, found.contracts)
    tables = Tables(pin_table(table) for file in found.contracts for table in file.tables)
    return _Written(path, next(iter(contracts), None), next(iter(patches), None), tables)


def _compiled(first: _Written, second: _Written) -> tuple[Compiled, Compiled]:
    contracts = first.contract or second.contract, second.contract or first.contract
    if contracts[0] is None or contracts[1] is None:
        raise DefinitionError(
            f"Neither {str(first.file)!r} nor {str(second.file)!r} has a contract.",
            code="NOT_COMPARABLE",
            hint="A patch is compared within its contract: put it into one of the files.",
        )
    return _graph(contracts[0], first), _graph(contracts[1], second)


def _graph(contract: ContractDefinition, written: _Written) -> Compiled:
    if written.patch is None:
        return compile_envelope(contract)
    return compile_effective(contract, written.patch, tables=written.tables)


def _unclear(path: Path, found: tuple[ContractFile, ...]) -> DefinitionError:
    counts: dict[str, Any] = {
        "contracts": sum(len(file.contracts) for file in found),
        "patches": sum(len(file.patches) for file in found),
    }
    held = " and ".join(f"{count} {noun}" for noun, count in counts.items())
    return DefinitionError(
        f"{str(path)!r} holds {held}; one of each at most is compared.",
        code="NOT_COMPARABLE",
        hint="Name a file with one contract, one patch, or both.",
    )
