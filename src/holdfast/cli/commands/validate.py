"""`holdfast validate`: check files without publishing them. `holdfast schema`: print the JSON Schema for editors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from holdfast.cli.render.output import draw, say, show_all, show_json
from holdfast.doors.steps import Problem, Workflow, steps_schema
from holdfast.doors.steps.load import load_steps, repeated
from holdfast.doors.steps.problems import Findings, in_order
from holdfast.doors.steps.reading import LARGEST
from holdfast.doors.steps.tree import START, Mark
from holdfast.errors import NotFound
from holdfast.printable import printable

SUFFIXES = (".yaml", ".yml")
FAILED = 1


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of steps, or directories of them.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check files of steps. Every problem is printed as `file:line:column: CODE message (hint)`; exit code 1 if any."""
    workflows, problems = read_files(files)
    if json:
        show_all([msgspec.to_builtins(problem) for problem in problems])
    else:
        tell(problems)
        _sum_up(workflows, problems)
    if any(problem.severity == "error" for problem in problems):
        raise typer.Exit(FAILED)


def schema() -> None:
    """Print the JSON Schema of files of steps, for editors that complete and check them."""
    show_json(steps_schema(), indent=2)


def read_files(paths: Sequence[Path]) -> tuple[tuple[Workflow, ...], tuple[Problem, ...]]:
    """The sound workflows of these files and of all files in these directories, and every problem of all of them."""
    workflows: list[Workflow] = []
    problems: list[Problem] = []
    for path in _files(paths):
        text = _text(path)
        if isinstance(text, Problem):
            problems.append(text)
            continue
        document = load_steps(text, name=str(path))
        workflows += document.workflows
        problems += document.problems
    return tuple(workflows), in_order([*problems, *repeated(workflows)])


def tell(problems: Sequence[Problem]) -> None:
    """One line each: red is wrong, yellow is a warning."""
    for found in problems:
        is_error = found.severity == "error"
        colour = "red" if is_error else "yellow"
        place = printable(f"{found.file}:{found.line}:{found.column}:")
        warning = "" if is_error else "warning: "
        hint = f" ({printable(found.hint)})" if found.hint else ""
        told = f" {warning}{printable(found.message)}"
        draw([Text.assemble((place, "bold"), " ", (found.code, colour), told, (hint, "dim"))])


def _sum_up(workflows: Sequence[Workflow], problems: Sequence[Problem]) -> None:
    errors = sum(problem.severity == "error" for problem in problems)
    warnings = len(problems) - errors
    if errors:
        more = f", {warnings} {'warning' if warnings == 1 else 'warnings'}" if warnings else ""
        say(f"{errors} {'problem' if errors == 1 else 'problems'}{more}.")
        return
    for workflow in workflows:
        say(f"{workflow.file}: {workflow.id} version {workflow.version}, {len(workflow.steps)} steps")


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Each file once, in the order it was named; those of a directory sorted."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise NotFound(f"There is no file {str(path)!r}.", code="FILE_NOT_FOUND", hint="Check the name.")
        inside = sorted(each for each in path.rglob("*") if each.suffix in SUFFIXES and each.is_file())
        for file in inside if path.is_dir() else [path]:
            if file not in seen:
                seen.add(file)
                yield file


def _text(path: Path) -> str | Problem:
    """Read the file up to the limit of the door."""
    findings = Findings(str(path))
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
