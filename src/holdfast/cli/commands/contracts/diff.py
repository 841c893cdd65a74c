"""`holdfast contracts diff`: compare two files of a contract and a patch with no database, or two published graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec
import typer

from holdfast.cli.commands.validate import FAILED, read_files, tell
from holdfast.cli.render.output import show_json, show_text
from holdfast.cli.render.pages import write_page
from holdfast.cli.target import anywhere, place
from holdfast.doors.envelope import ContractDefinition, ContractFile, PatchDefinition
from holdfast.doors.envelope.decision_tables.building import pin_table
from holdfast.doors.envelope.effective import compile_effective, compile_envelope
from holdfast.doors.envelope.tables import Tables
from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled
from holdfast.graph.difference.compare import difference
from holdfast.graph.difference.model import Difference
from holdfast.runtime.envelopes.sides import DRAFT, ENVELOPE, After, Before, check_side
from holdfast.views.difference_page import difference_page
from holdfast.views.difference_text import difference_text
from holdfast.views.difference_words import names_of

MOST_DIGITS: Final = 10  # of a version


@anywhere
def diff(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE|TYPE", help="A file of a contract, with a patch or without; or a type.")
    ],
    after: Annotated[
        Path | None, typer.Argument(metavar="AFTER", help="The same; without a contract it takes the other's.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="envelope|VERSION", help="Of a type: the graph before.")
    ] = None,
    second: Annotated[
        str | None, typer.Option("--to", metavar="VERSION|draft", help="Of a type: the graph after.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page of HTML with both drawings.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two files, with no database; or with --from and --to two published versions of a type."""
    if first is None and second is None:
        if after is None:
            raise typer.BadParameter("Name two files, or a type with --from and --to.")
        told = _of_files(Path(before), after, wants_page=html is not None)
    elif first is None or second is None or after is not None or Path(before).is_file():
        raise typer.BadParameter("--from and --to belong together, and to a type instead of files.")
    else:
        told = _of_type(before, first, second, wants_page=html is not None)
    if html is not None:
        write_page(html, told.page)
    if json:
        show_json(msgspec.to_builtins(told.found))
    elif html is None:
        show_text(difference_text(told.found, told.names).rstrip("\n"))


class _Told(msgspec.Struct, frozen=True):
    found: Difference
    names: tuple[str, str]
    page: str  # empty if it was not asked for


def _of_files(before: Path, after: Path, *, wants_page: bool) -> _Told:
    first, second = _compiled(_read(before), _read(after))
    names = str(before), str(after)
    page = difference_page(first, second, names) if wants_page else ""
    return _Told(difference(first, second), names, page)


def _of_type(type: str, first: str, second: str, *, wants_page: bool) -> _Told:
    before, after = cast("Before", read_side(first)), cast("After", read_side(second))
    check_side(before, "--from", ENVELOPE)
    check_side(after, "--to", DRAFT)
    with place() as engine:
        found = engine.contract_difference(type, before, after)
        page = engine.contract_difference_page(type, before, after) if wants_page else ""
    return _Told(found, names_of(found, is_draft=after == DRAFT), page)


def read_side(text: str) -> int | str:
    """Read a version; anything else is a word."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else text


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
