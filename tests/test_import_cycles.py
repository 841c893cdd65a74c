"""No module imports another one that imports it back, for types only or inside a function included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"


def name_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast."):
            home = (node.module or "").removeprefix("holdfast.")
            for alias in node.names:
                inside = f"{home}.{alias.name}"
                yield inside if inside in modules else home


def graph() -> dict[str, set[str]]:
    files = {name_of(file): file for file in SOURCE.rglob("*.py")}
    return {name: {other for other in imports(file, set(files)) if other != name} for name, file in files.items()}


def cycle_in(edges: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_imports_go_in_a_circle() -> None:
    assert cycle_in(graph()) == []


def test_a_circle_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not cycle_in({"a": {"b"}, "b": {"c"}})
