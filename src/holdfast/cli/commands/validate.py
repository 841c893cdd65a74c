"""`holdfast validate`: check files without publishing them. `holdfast schema`: print the JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.text import Text

from holdfast.cli.machine_files import Read, in_directory, is_machine_file, read_machines
from holdfast.cli.render.output import draw, say, show_all, show_json
from holdfast.doors.envelope import ContractFile, contract_schema, load_contracts, patch_schema, table_schema
from holdfast.doors.envelope.reading.load import is_contract_file
from holdfast.doors.machine import Problem as MachineProblem
from holdfast.doors.machine import blueprint_schema, policy_schema
from holdfast.doors.steps import Problem, Workflow, steps_schema
from holdfast.doors.steps.load import load_steps, repeated
from holdfast.doors.steps.problems import findings_of
from holdfast.doors.yaml.problems import in_order
from holdfast.doors.yaml.reading import LARGEST
from holdfast.doors.yaml.tree import START, Mark
from holdfast.errors import NotFound
from holdfast.printable import printable

SUFFIXES = (".yaml", ".yml")
FAILED = 1
SCHEMAS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "steps": steps_schema,
    "blueprint": blueprint_schema,
    "policy": policy_schema,
    "contract": contract_schema,
    "patch": patch_schema,
    "table": table_schema,
}


class Files(msgspec.Struct, frozen=True):
    """What files of YAML hold: the sound workflows and contracts, and every problem."""

    workflows: tuple[Workflow, ...]
    contracts: tuple[ContractFile, ...]
    problems: tuple[Problem, ...]


def validate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files of steps, contracts, patches, tables or machines, or directories."),
    ],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The policy to check a blueprint with.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check files without publishing them: a line per problem, `file:line:column: CODE message (hint)`.

    Exit code 1 if there is any. A policy is checked with the blueprint of its machine, if that is named as well.
    """
    machine_files = list(_machine_files(files))
    others = [path for path in files if path not in machine_files]
    machines, misfits = read_machines(machine_files, policy) if machine_files or policy is not None else ((), ())
    files_of_yaml = read_files(others)
    found = [*files_of_yaml.problems, *misfits]
    if json:
        show_all([msgspec.to_builtins(problem) for problem in found])
    else:
        tell(found)
        _sum_up(files_of_yaml, machines, found)
    if any(problem.severity == "error" for problem in found):
        raise typer.Exit(FAILED)


def schema(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SCHEMAS)}.")] = "steps",
) -> None:
    """Print the JSON Schema of a kind of files, for editors that complete and check."""
    if name not in SCHEMAS:
        raise NotFound(f"There is no schema {name!r}.", hint=f"Choose one of {', '.join(SCHEMAS)}.")
    show_json(SCHEMAS[name](), indent=2)


def _machine_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files of machines among the named ones and in the named directories."""
    for path in paths:
        if path.is_dir():
            yield from sorted(in_directory(path))
        elif is_machine_file(path):
            if not path.exists():
                raise _missing(path)
            yield path


def _missing(path: Path) -> NotFound:
    return NotFound(f"There is no file {str(path)!r}.", code="FILE_NOT_FOUND", hint="Check the name.")


def read_files(paths: Sequence[Path]) -> Files:
    """Read these files and all files in these directories."""
    workflows: list[Workflow] = []
    contracts: list[ContractFile] = []
    problems: list[Problem] = []
    for path in _files(paths):
        text = _text(path)
        if isinstance(text, Problem):
            problems.append(text)
            continue
        if is_contract_file(text):
            contracts.append(load_contracts(text, name=str(path)))
            problems += contracts[-1].problems
            continue
        document = load_steps(text, name=str(path))
        workflows += document.workflows
        problems += document.problems
    return Files(tuple(workflows), tuple(contracts), in_order([*problems, *repeated(workflows)]))


def tell(problems: Sequence[Problem | MachineProblem]) -> None:
    """One line each: red is wrong, yellow is a warning."""
    for found in problems:
        is_error = found.severity == "error"
        colour = "red" if is_error else "yellow"
        place = printable(f"{found.file}:{found.line}:{found.column}:" if found.line else f"{found.file}:")
        warning = "" if is_error else "warning: "
        hint = f" ({printable(found.hint)})" if found.hint else ""
        told = f" {warning}{printable(found.message)}"
        draw([Text.assemble((place, "bold"), " ", (found.code, colour), told, (hint, "dim"))])


def _sum_up(files: Files, machines: Sequence[Read], problems: Sequence[Problem | MachineProblem]) -> None:
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if errors:
        more = f", {warnings} {'warning' if warnings == 1 else 'warnings'}" if warnings else ""
        say(f"{errors} {'problem' if errors == 1 else 'problems'}{more}.")
        return
    for workflow in files.workflows:
        say(f"{workflow.file}: {workflow.id} version {workflow.version}, {len(workflow.steps)} steps")
    for read in files.contracts:
        for contract in read.contracts:
            say(f"{read.file}: contract {contract.type} version {contract.version}, {len(contract.states)} states")
        for patch in read.patches:
            say(f"{read.file}: patch of {patch.contract} version {patch.envelope}, {len(patch.slots)} slots")
        for table in read.tables:
            say(f"{read.file}: table {table.name} version {table.version}, {len(table.rows)} rows")
    for machine in machines:
        say(f"{machine.file}: {machine.summary}")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Each file once, in the order it was named; those of a directory sorted."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise _missing(path)
        inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
        for file in inside if path.is_dir() else [path]:
            if file not in seen:
                seen.add(file)
                yield file


def _text(path: Path) -> str | Problem:
    """Read the file up to the limit of the door."""
    findings = findings_of(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        # What is too large is refused for that, even if it was cut in the middle of a character.
        return data.decode("utf-8-sig", errors="strict" if len(data) <= LARGEST else "replace")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        column = error.start - (error.object.rfind(b"\n", 0, error.start) + 1) + 1
        findings.add("YAML_CHARACTER", "The file is not UTF-8.", Mark(line, column))
    except OSError as error:
        findings.add("YAML_SYNTAX", f"The file cannot be read: {error.strerror}.", START)
    return findings.problems[0]
