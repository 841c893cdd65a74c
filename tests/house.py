"""The state of the house in numbers, each with its aim and its worst offenders: `make house`.

Reads the sources as text and as syntax trees; imports nothing of Holdfast and needs no database.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.docstring_rule import complaints, docstrings, package

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src" / "holdfast"
SHOWN: Final = 5  # offenders per number; all of them with --all

MAX_SIBLINGS: Final = 20
ROOMY: Final = {"cli/commands": 25}  # a command per file
MAX_SQL: Final = 40  # a folder of statements
MAX_FUNCTION: Final = 50
MANY_ARGUMENTS: Final = 9


class Module(NamedTuple):
    path: Path
    name: str
    text: str
    nodes: list[ast.AST]  # all of its syntax tree, the module itself first

    @property
    def where(self) -> str:
        return str(self.path.relative_to(SOURCE))


class Number(NamedTuple):
    """One row of the report: a number, its aim, whether the aim is met, and the offenders, worst first."""

    title: str
    value: str
    aim: str = ""
    is_met: bool = True
    worst: tuple[str, ...] = ()


def measure() -> list[Number]:
    modules = read_modules()
    return [
        *sizes(modules),
        siblings(modules),
        statements(),
        long_functions(modules),
        positional_calls(modules),
        unformatted(modules),
        cycles(modules),
        kind_names(modules),
        graph_kinds_in_core(modules),
        against_the_rule(modules),
    ]


def read_modules() -> list[Module]:
    found: list[Module] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text()
        found.append(Module(path, name, text, list(ast.walk(ast.parse(text)))))
    return found


def sizes(modules: list[Module]) -> list[Number]:
    lines = {module.where: module.text.count("\n") for module in modules}
    filled = {where: count for where, count in lines.items() if not where.endswith("__init__.py")}
    longest = [f"{count:4} {where}" for where, count in by_size(filled)]
    return [
        Number("modules", str(len(modules))),
        Number("lines", str(sum(lines.values()))),
        Number("lines of a module, median", f"{median(filled.values()):g}"),
        Number("lines of a module, max", str(max(filled.values())), worst=tuple(longest)),
    ]


def siblings(modules: list[Module]) -> Number:
    counts = Counter(
        str(module.path.parent.relative_to(SOURCE)) for module in modules if module.path.name != "__init__.py"
    )
    crowded = {folder: n for folder, n in counts.items() if n > ROOMY.get(folder, MAX_SIBLINGS)}
    return Number(
        "modules in a directory, max",
        str(max(counts.values())),
        f"≤ {MAX_SIBLINGS}, commands 25",
        not crowded,
        tuple(f"{n:4} {folder}" for folder, n in by_size(crowded)),
    )


def statements() -> Number:
    counts = Counter(str(path.parent.relative_to(SOURCE)) for path in (SOURCE / "store" / "sql").rglob("*.sql"))
    crowded = {folder: n for folder, n in counts.items() if n > MAX_SQL}
    worst = tuple(f"{n:4} {folder}" for folder, n in by_size(crowded))
    return Number("statements in a folder, max", str(max(counts.values())), f"≤ {MAX_SQL}", not crowded, worst)


def long_functions(modules: list[Module]) -> Number:
    found = {
        f"{module.where}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    long = {name: lines for name, lines in found.items() if lines > MAX_FUNCTION}
    worst = tuple(f"{lines:4} {name}" for name, lines in by_size(long))
    return Number(f"functions over {MAX_FUNCTION} lines", str(len(long)), worst=worst)


def positional_calls(modules: list[Module]) -> Number:
    found = {
        f"{module.where}:{node.lineno} {ast.unparse(node.func)}": len(node.args)
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.Call) and len(node.args) >= MANY_ARGUMENTS
    }
    worst = tuple(f"{n:4} {name}" for name, n in by_size(found))
    title = f"calls with {MANY_ARGUMENTS} or more positional arguments"
    return Number(title, str(len(found)), "< 25", len(found) < 25, worst)


def unformatted(modules: list[Module]) -> Number:
    found = [
        f"{module.where}:{number}"
        for module in modules
        for number, line in enumerate(module.text.splitlines(), 1)
        if re.search(r"#\s*fmt:\s*(?:skip|off)", line)
    ]
    return Number("fmt: skip and fmt: off", str(len(found)), worst=tuple(found))


def cycles(modules: list[Module]) -> Number:
    """Groups of modules that import each other, by whatever way: at the top, in a function or for types only."""
    names = {module.name for module in modules}
    edges = {module.name: set(imports(module, names)) - {module.name} for module in modules}
    groups = [group for group in components(edges) if len(group) > 1]
    worst = tuple(f"{len(group):4} {' · '.join(sorted(group))}" for group in sorted(groups, key=len, reverse=True))
    return Number("import cycles", str(len(groups)), "0", not groups, worst)


def imports(module: Module, names: set[str]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in names or node.module in names:
                    yield inner if inner in names else node.module


def components(edges: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Strongly connected components, by Tarjan."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in edges[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            group = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            found.append(group)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for name in edges:
            if name not in index:
                visit(name)
    finally:
        sys.setrecursionlimit(limit)
    return found


def table(modules: list[Module], place: str, name: str) -> tuple[str, set[str]]:
    """The module that assigns `name`, and the strings in it that are keys or elements."""
    for module in modules:
        for node in module.nodes if module.where == place else ():
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name and node.value is not None:
                parts = node.value.keys if isinstance(node.value, ast.Dict) else ast.walk(node.value)
                return module.where, {
                    part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    raise SystemExit(f"{place} does not assign {name}: correct {Path(__file__).name}.")


def kind_names(modules: list[Module]) -> Number:
    tables = [table(modules, "graph/kinds.py", "KINDS"), table(modules, "graph/rules.py", "RULES")]
    known = set[str]().union(*(names for _, names in tables))
    home = tables[0][0]
    found = [
        f"{module.where}:{node.lineno} {ast.unparse(node)[:90]}"
        for module in modules
        if module.where != home
        for node in module.nodes
        if names_a_kind(node, known)
    ]
    return Number("sites that name a kind outside its table", str(len(found)), "≤ 8", len(found) <= 8, tuple(found))


OF_A_NODE: Final = re.compile(r"(?:node|nodes\[.*\]|graph|compiled|flow|definition|program)\.kind$")


def names_a_kind(node: ast.AST, known: set[str]) -> bool:
    """A comparison of a node's or a graph's `.kind` with a name, or a set of nothing but names of kinds."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(OF_A_NODE.search(ast.unparse(side)) for side in sides if isinstance(side, ast.Attribute)) and any(
            isinstance(part, ast.Constant) and part.value in known for side in sides for part in ast.walk(side)
        )
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "frozenset" and node.args:
        elements = node.args[0].elts if isinstance(node.args[0], ast.Set) else []
        return len(elements) > 1 and all(isinstance(e, ast.Constant) and e.value in known for e in elements)
    return False


def graph_kinds_in_core(modules: list[Module]) -> Number:
    """Questions in core for the kind of a whole graph, where a rule looked up at link time belongs."""
    found = [
        f"{module.where}:{node.lineno} {ast.unparse(node)}"
        for module in modules
        if module.where.startswith("core/")
        for looked_up in [looks_up_rules(module)]
        for node in module.nodes
        if node not in looked_up
        and isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and is_graph_question(node)
    ]
    return Number("graph-kind tests in core", str(len(found)), "0", not found, tuple(found))


def looks_up_rules(module: Module) -> set[ast.AST]:
    """The kinds of graphs that are only a key: `rules_of(compiled.kind)` asks the table."""
    calls = (node for node in module.nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "rules_of")
    return {argument for call in calls for argument in call.args}


def is_graph_question(node: ast.Attribute) -> bool:
    return node.attr in {"is_steps", "is_saga"} or (
        node.attr == "kind" and bool(re.search(r"(?:graph|compiled|program)$", ast.unparse(node.value)))
    )


def against_the_rule(modules: list[Module]) -> Number:
    totals: Counter[str] = Counter()
    bad: defaultdict[str, int] = defaultdict(int)
    for module in modules:
        for docstring in docstrings(module.path, module.nodes):
            totals[package(module.path, SOURCE)] += 1
            bad[package(module.path, SOURCE)] += bool(complaints(docstring.text))
    share = sum(bad.values()) / sum(totals.values())
    worst = tuple(f"{n:4} of {totals[name]:3} {name}" for name, n in by_size(bad) if n)
    return Number("docstrings against the rule", f"{share:.1%}", "< 2 %", share < 0.02, worst)


def by_size(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def main(arguments: list[str]) -> None:
    shown = None if "--all" in arguments else SHOWN
    for number in measure():
        mark = " " if number.is_met else "✗"
        print(f"{mark} {number.title:<50} {number.value:>8}   {number.aim}".rstrip())
        for line in number.worst[:shown]:
            print(f"      {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
