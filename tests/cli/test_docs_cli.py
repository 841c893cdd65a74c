"""Hints name pages of the documentation, and every installation has them."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.commands import docs

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def said(path: Path) -> Iterator[str]:
    """What a module may tell somebody: its texts, without those that only document the code."""
    tree = ast.parse(path.read_text())
    silent = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_hints_name_pages_that_there_are() -> None:
    texts = [(path, text) for path in SOURCES for text in said(path)]
    assert [found for found in texts if re.search(r"\bdocs/[\w/-]+\.md", found[1])] == []
    named = {name for _, text in texts for name in re.findall(r"`holdfast docs ([\w/-]+)`", text)}
    assert named >= {"steps", "graph", "sagas"}
    assert named <= docs.find_pages().keys()


def test_the_wheel_holds_them_where_the_command_looks() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"docs": "holdfast/docs"}
    assert docs.PLACES[0] == docs.PACKAGE / "docs"


def test_a_page_is_shown_from_a_wheel_and_from_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    assert run(app, ["docs", "steps"]).stdout == (ROOT / "docs/steps.md").read_text()
    (tmp_path / "howto").mkdir()
    (tmp_path / "howto/dlq.md").write_text("# Letters\n")
    monkeypatch.setattr(docs, "PLACES", (tmp_path, ROOT / "docs"))
    assert run(app, ["docs"]).stdout == "howto/dlq\n"
    assert run(app, ["docs", "docs/howto/dlq.md"]).stdout == "# Letters\n"


def test_a_name_that_is_nearly_one_is_corrected() -> None:
    refused = CliRunner().invoke(app, ["docs", "stepz"])
    assert "steps" in str(getattr(refused.exception, "hint", ""))
