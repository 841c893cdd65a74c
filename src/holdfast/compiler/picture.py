"""A definition as a tree of text: one line per step, with room for a mark beside each, such as the state it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.compiler.graph import Graph, Node, load_graph
from holdfast.compiler.lowering import WAITS_FOR, lower
from holdfast.compiler.outline import outline
from holdfast.compiler.scopes import find_scopes
from holdfast.compiler.steps import is_steps, read_workflow, to_graph
from holdfast.compiler.topology import read_topology
from holdfast.compiler.tree import ASCII, UNICODE, Twig, render, undo_twig
from holdfast.definitions.model import (
    Condition,
    Definition,
    Fork,
    Human,
    Items,
    Join,
    NamedItem,
    Parallel,
    Rejoin,
    SavePoint,
    Sleep,
    Step,
    SubFlow,
    WaitEvent,
    undo_of,
)
from holdfast.definitions.rejoins import comes_back, match_rejoins
from holdfast.definitions.sources import is_written, read_source

SHOWN: Final = 8  # of the steps a join waits for


def draw(
    definition: Definition | Graph | Mapping[str, Any], marks: Mapping[str, str] | None = None, *, ascii: bool = False
) -> str:
    """The tree of a definition, or of the source of a published one; `marks` says what stands beside which node."""
    known = read_definition(definition)
    twigs = outline(known) if isinstance(known, Graph) else _Tree(known).path(known.items)
    return render(f"{known.name} version {known.version}", twigs, marks or {}, ASCII if ascii else UNICODE)


def read_definition(definition: Definition | Graph | Mapping[str, Any]) -> Definition | Graph:
    """What a source was written as, be it a flow, a workflow of steps or a graph."""
    if isinstance(definition, Definition | Graph):
        return definition
    if is_steps(definition):
        return to_graph(read_workflow(definition))
    return read_source(definition) if is_written(definition) else load_graph(dict(definition))


class _Tree:
    def __init__(self, definition: Definition) -> None:
        graph = lower(definition)
        self.nodes = {node.id: node for node in graph.nodes}
        closes = find_scopes(read_topology(graph)).closes
        self.joins: dict[str | None, Node] = {split: self.nodes[join] for join, split in closes.items()}

    def path(self, items: Items, *, comes_back_to: str = "") -> tuple[Twig, ...]:
        rejoins = match_rejoins(items)
        twigs: list[Twig] = []
        for position, item in enumerate(items):
            if isinstance(item, Rejoin):
                twigs.append(_rejoin(items, rejoins.closes.get(position), comes_back_to))
            elif not isinstance(item, Join):
                twigs.append(self.item(item, is_closed=position in rejoins.closed))
            if isinstance(item, Fork | Parallel) and item.name in self.joins:
                twigs.append(_join(self.joins[item.name]))
        return tuple(twigs)

    def item(self, item: NamedItem, *, is_closed: bool) -> Twig:
        undo = undo_of(item)
        inner = () if undo is None else (undo_twig(undo.name),)
        if isinstance(item, Fork | Parallel):
            inner = tuple(self.branch(number, branch) for number, branch in enumerate(item.branches, 1))
        if isinstance(item, Condition):
            inner = (self.otherwise(item, is_closed=is_closed),)
        return Twig(item.name, _detail(item), node=item.name, inner=inner)

    def branch(self, number: int, items: Items) -> Twig:
        twigs = self.path(items)
        return twigs[0] if len(twigs) == 1 else Twig(f"branch {number}", inner=twigs)

    def otherwise(self, condition: Condition, *, is_closed: bool) -> Twig:
        returns = is_closed or comes_back(condition.otherwise)
        detail = "comes back at the rejoin" if is_closed else "comes back" if returns else "ends this way"
        return Twig("otherwise", detail, inner=self.path(condition.otherwise or (), comes_back_to=condition.name))


def _rejoin(items: Items, closed: int | None, comes_back_to: str) -> Twig:
    condition = None if closed is None else items[closed]
    if isinstance(condition, Condition):
        return Twig("rejoin", f"both ways of {condition.name} go on here")
    return Twig("rejoin", f"back to the path of {comes_back_to}")


def _join(join: Node) -> Twig:
    waits_for: list[str] = join.config[WAITS_FOR]
    shown = ", ".join(waits_for[:SHOWN]) + (f" and {len(waits_for) - SHOWN} more" if len(waits_for) > SHOWN else "")
    return Twig(join.id, f"join of {join.mode}: {shown}", node=join.id)


def _detail(item: NamedItem) -> str:
    match item:
        case Step():
            return "step" if item.handler == item.name else f"step, handler {item.handler}"
        case Human():
            return f"person, {' or '.join(item.roles)}" if item.roles else "person"
        case WaitEvent():
            return f"event {item.event}" + (f" by {item.key}" if item.key is not None else "")
        case Sleep():
            return _moment(item)
        case SubFlow():
            return f"flow {item.flow}" + (f" version {item.version}" if item.version is not None else "")
        case SavePoint():
            return "save point"
        case Condition():
            return f"if {item.expression}"
        case Fork() | Parallel():
            return f"{type(item).__name__.lower()} of {len(item.branches)}"
        case Join():
            return "join"


def _moment(item: Sleep) -> str:
    if item.seconds is not None:
        return f"sleep {item.seconds:g} s"
    if item.cron is not None:
        return f"sleep until cron {item.cron}"
    return f"sleep until {item.until}" if item.until is not None else f"sleep for {item.after}"
