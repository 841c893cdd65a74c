"""A flow as a tree of text: one line per step, in the order the builder wrote them."""

from __future__ import annotations

from typing import Final

from holdfast.doors.saga.branch_merges import comes_back, match_rejoins
from holdfast.doors.saga.lowering import WAITS_FOR, lower
from holdfast.doors.saga.model import (
    Call,
    Condition,
    Definition,
    Fork,
    Human,
    Items,
    Join,
    Mail,
    NamedItem,
    Parallel,
    Rejoin,
    SavePoint,
    Sleep,
    Step,
    SubFlow,
    WaitEvent,
    Webhook,
    undo_of,
)
from holdfast.graph.drawing.text_tree import Twig, undo_twig
from holdfast.graph.model import Node
from holdfast.graph.scopes import find_scopes
from holdfast.graph.topology import read_topology

SHOWN: Final = 8  # of the steps a join waits for


def saga_outline(definition: Definition) -> tuple[Twig, ...]:
    return _Tree(definition).path(definition.items)


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
        case Call():
            return "call" if item.handler == item.name else f"call of {item.handler}"
        case Webhook():
            return f"webhook to {item.url}"
        case Mail():
            return "mail" if item.to is None else f"mail to {_shown(item.to)}"
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


def _shown(addresses: str | list[str]) -> str:
    return addresses if isinstance(addresses, str) else ", ".join(addresses)
