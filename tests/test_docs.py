"""The documentation is true: its code runs, its codes and files exist, and nothing is left out."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli.app import app

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "holdfast"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|CONFLICT|FORBIDDEN|UNEXPECTED")
# Text that looks like a code and is none: names of variables, files and constants.
NO_CODES = re.compile(r"HOLDFAST_(?!ERROR)\w+|XDG_DATA_HOME|LC_ALL|PG_VERSION|SC_\w+|MAX_\w+|WARN_BYTES|REQUEST_FACTS")
READERS_OWN = {
    "/app/main.py", "billing.py", "conftest.py", "dashboard.py", "main.py", "shop.py", "test_orders.py", "warehouse.py",
}  # fmt: skip
EXPRESSIONS = SOURCE / "graph" / "expressions"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def run(script: str, dsn: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOLDFAST_DSN": dsn},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAMS = [
    "docs/howto/dlq.md",
    "docs/howto/exactly_once.md",
    "docs/howto/human_step.md",
    "docs/howto/several_services.md",
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_page_that_is_a_program_prints_what_it_says(name: str, holdfast_dsn: str) -> None:
    page = ROOT / name
    assert run("\n".join(blocks(page, "python")), holdfast_dsn) == "".join(blocks(page, "text"))


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_what_a_reader_runs_again_prints_the_same(name: str, holdfast_dsn: str) -> None:
    """On the same database: the example because it is at hand, the tutorial after every section."""
    page = ROOT / name
    for _ in range(2):
        assert run("\n".join(blocks(page, "python")), holdfast_dsn) == "".join(blocks(page, "text"))


def test_the_example_of_the_readme_is_short() -> None:
    [example] = blocks(ROOT / "README.md", "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 20


def test_the_tests_of_the_how_to_about_time_pass(tmp_path: Path) -> None:
    """Beside others of the same session: it finds the server of the tests by itself, as a reader's project does."""
    file = tmp_path / "test_orders.py"
    file.write_text("\n\n".join(blocks(ROOT / "docs" / "howto" / "testing_with_time.md", "python")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", file],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_are_python(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def string_constants(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def codes_in_source() -> set[str]:
    found: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        for text in string_constants(file):
            if CODE.fullmatch(text) and not NO_CODES.fullmatch(text):
                is_short = EXPRESSIONS in file.parents and not text.startswith("EXPRESSION_")
                found.add(f"EXPRESSION_{text}" if is_short else text)
    return found


def test_every_error_code_is_documented() -> None:
    documented = set(re.findall(r"`([A-Z0-9_]+)`", (ROOT / "docs" / "errors.md").read_text()))
    assert codes_in_source() - documented == set()


def test_every_documented_error_code_exists() -> None:
    documented = {
        code
        for code in re.findall(r"`([A-Z0-9_]+)`", (ROOT / "docs" / "errors.md").read_text())
        if CODE.fullmatch(code) and not NO_CODES.fullmatch(code)
    }
    plain = {f"EXPRESSION_{kind}" for kind in ("SYNTAX", "TYPE")}  # one word, so not recognised in the source
    assert documented - plain - codes_in_source() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """Paths in backticks, given from the root, from the package, or as the bare name of a statement."""
    places = (ROOT, SOURCE.parent, SOURCE, SOURCE / "store" / "migrations", *(SOURCE / "store" / "sql").glob("*/"))
    for name in re.findall(r"`([\w./-]+\.(?:sql|py|md|txt|toml))`", page.read_text()):
        if name not in READERS_OWN:
            assert any((place / name).exists() for place in places), name


def test_every_page_is_on_the_map() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [
        str(page) for page in (ROOT / "docs").rglob("*.md") if page.name != "index.md" and f"{page.name})" not in index
    ]
    assert missing == []


def test_every_command_and_option_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for command, parameters in commands(get_command(app), "holdfast"):
        assert command in page
        assert [option for option in parameters if f"`{option}`" not in page] == [], command


def commands(command: object, name: str) -> Iterator[tuple[str, list[str]]]:
    parts = getattr(command, "commands", None)
    if parts is not None:
        for part, found in parts.items():
            yield from commands(found, f"{name} {part}")
        return
    visible = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]  # type: ignore[attr-defined]
    yield name, [option for parameter in visible for option in parameter.opts if option.startswith("--")]
