"""No module imports another one that imports it back, for types only or inside a function included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "holdfast"

# Edges that still close a cycle: (module, what it imports back). Nothing is to be added here.
KNOWN = {
    ("runtime.commit.follow_ups", "runtime.commit.batch"),
    ("runtime.commit.history_cache", "runtime.commit.batch"),
    ("runtime.commit.bisect", "runtime.commit.failures"),
    ("runtime.commit.crash_guard", "runtime.commit.committer"),
    ("runtime.commit.failures", "runtime.commit.committer"),
    ("runtime.ops.operations", "runtime.engine.core"),
    ("testing.wiring", "testing.failpoints"),
}


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
    edges = graph()
    left = {name: {other for other in found if (name, other) not in KNOWN} for name, found in edges.items()}
    assert cycle_in(left) == []


def test_none_in_the_core_and_the_store_even_those_that_are_known() -> None:
    assert not {edge for edge in KNOWN if edge[0].startswith(("core.", "store."))}


def test_what_is_known_is_still_there() -> None:
    edges = graph()
    for module, other in KNOWN:
        assert other in edges.get(module, ()), f"{module} imports {other} no more: take it off the list"


def test_a_circle_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not cycle_in({"a": {"b"}, "b": {"c"}})
