"""Lowering of a saga to the graph.

A path is laid out item by item. Loose ends behind the last item are *ways*: edges whose target is not known
yet. The next item ties them; a condition leaves two; a way that is over waits for the end of its branch, which is the
join of its fork, or the flow's end. So every item is looked at once, and nothing is searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

import msgspec

from holdfast.doors.saga.branch_merges import comes_back, match_rejoins
from holdfast.doors.saga.expressions import check_written
from holdfast.doors.saga.model import (
    Condition,
    Definition,
    Fork,
    Items,
    Join,
    NamedItem,
    Parallel,
    Rejoin,
    every_item,
    undo_of,
)
from holdfast.doors.saga.nodes import compensation_of, node_of
from holdfast.doors.saga.problems import require_none
from holdfast.graph.model import Edge, Graph, Node, Policy

LONGEST_ID: Final = 200  # bytes
VIRTUAL: Final = "cond#"  # stands for whatever step a condition makes the last one of a branch
WAITS_FOR: Final = "waits_for"  # in the config of a join: the last step of each branch


class _Way(msgspec.Struct, frozen=True):
    """An edge that leads nowhere yet."""

    source: str
    when: str | None = None
    priority: int = 0
    label: str | None = None
    decided_by: tuple[str, ...] = ()  # conditions that decide whether this way or another is the last one


def lower(definition: Definition) -> Graph:
    require_none(definition.name, tuple(check_written(definition)))
    layout = _Layout(definition)
    over: list[_Way] = []
    ways = layout.path(definition.items, [], over)
    if ways or over:
        layout.tie([*ways, *over], layout.add(Node(id=layout.fresh("end"), kind="end")))
    return Graph(
        name=definition.name,
        version=definition.version,
        kind="saga",
        entry=layout.nodes[0].id if layout.nodes else "",  # nothing was written: the checks say so
        nodes=tuple(layout.nodes),
        edges=tuple(layout.edges.values()),
        policy=_policy(definition),
    )


def _policy(definition: Definition) -> Policy:
    return Policy(
        on_error="dlq" if definition.dlq else "rollback",
        on_cancel="rollback",
        data=definition.data,
        missing="zero",
        timeout=definition.timeout,
    )


class _Layout:
    def __init__(self, definition: Definition) -> None:
        self.nodes: list[Node] = []
        self.conditions: dict[str, int] = {}  # in the order they were written
        self.edges: dict[str, Edge] = {}
        self.taken = set(_names(definition.items))
        self.calls = definition.retries

    def add(self, node: Node) -> str:
        self.nodes.append(node)
        return node.id

    def fresh(self, wanted: str) -> str:
        """An id of the engine's own gives way to steps of that name."""
        candidates = (wanted if number == 0 else f"{wanted}#{number}" for number in count())
        id = next(candidate for candidate in candidates if candidate not in self.taken)
        self.taken.add(id)
        return id

    def tie(self, ways: Iterable[_Way], target: str) -> None:
        for way in ways:
            id = f"{way.source}>{target}"
            # Long names do not fit, and names that contain '>' may read alike; no readable id looks like the plain one.
            if len(id.encode()) > LONGEST_ID or id in self.edges:
                id = f"edge#{len(self.edges) + 1}"
            self.edges[id] = Edge(
                id=id, source=way.source, target=target, when=way.when, priority=way.priority, label=way.label
            )

    def path(self, items: Items, ways: list[_Way], over: list[_Way]) -> list[_Way]:
        """Lay out the items behind `ways`; answers the ways on. Those that are over are added to `over`."""
        rejoins = match_rejoins(items)
        returning: dict[int, list[_Way]] = {}  # position of a condition → the ways that wait for its marker
        for position, item in enumerate(items):
            following = items[position + 1] if position + 1 < len(items) else None
            match item:
                case Condition():
                    ways, back = self.condition(item, ways, over)
                    if position in rejoins.closed:
                        returning[position] = back
                    elif comes_back(item.otherwise):
                        ways = [*ways, *back]
                    else:
                        over.extend(back)
                case Rejoin():
                    closed = rejoins.closes.get(position)
                    ways = [*ways, *returning.pop(closed, ())] if closed is not None else ways
                case Fork() | Parallel():
                    join = following if isinstance(following, Join) else None
                    ways = self.fork(item, join, ways)
                case Join():
                    pass  # laid out with its fork
                case _:
                    ways = self.step(item, ways)
        return ways

    def step(self, item: NamedItem, ways: list[_Way]) -> list[_Way]:
        self.tie(ways, self.add(node_of(item, self.calls)))
        undo = undo_of(item)
        if undo is not None:
            self.add(compensation_of(undo, self.calls))
        return [_Way(item.name)]

    def condition(self, item: Condition, ways: list[_Way], over: list[_Way]) -> tuple[list[_Way], list[_Way]]:
        self.tie(ways, self.add(node_of(item, self.calls)))
        self.conditions[item.name] = len(self.conditions)
        decided_by = (item.name,)
        back = [_Way(item.name, priority=1, label="otherwise", decided_by=decided_by)]
        if item.otherwise is not None:
            back = [_decided(way, item.name) for way in self.path(item.otherwise, back, over)]
        return [_Way(item.name, when=item.expression, decided_by=decided_by)], back

    def fork(self, item: Fork | Parallel, join: Join | None, ways: list[_Way]) -> list[_Way]:
        split = self.add(node_of(item, self.calls))
        self.tie(ways, split)
        ends: list[list[_Way]] = []
        for index, branch in enumerate(item.branches):
            over: list[_Way] = []
            ends.append([*self.path(branch, [_Way(split, priority=index)], over), *over])
        if join is None and isinstance(item, Fork):
            self.end(ends)
            return []
        meeting = Join(name=self.fresh(_joined(item.name)), mode="all") if join is None else join
        waits_for = [last for branch in ends for last in self.last_steps(branch)]
        node = Node(
            id=meeting.name, kind="join", mode=meeting.mode, config={WAITS_FOR: waits_for}, metadata=meeting.metadata
        )
        self.add(node)
        for branch in ends:
            self.tie(branch, meeting.name)
        return [_Way(meeting.name)]

    def last_steps(self, branch: list[_Way]) -> list[str]:
        """The nodes a join waits for: the last step of a branch, or the conditions that select it."""
        conditions = {condition for way in branch for condition in way.decided_by}
        if not conditions:
            return list(dict.fromkeys(way.source for way in branch))
        return [f"{VIRTUAL}{condition}" for condition in sorted(conditions, key=self.conditions.__getitem__)]

    def end(self, ends: list[list[_Way]]) -> None:
        """End the branches that no join brings together in an end node inside the fork."""
        loose = [way for branch in ends for way in branch]
        if loose:
            self.tie(loose, self.add(Node(id=self.fresh("end"), kind="end")))


def _names(items: Items) -> Iterator[str]:
    for item in every_item(items):
        if not isinstance(item, Rejoin):
            yield item.name
        if undo := undo_of(item):
            yield undo.name


def _joined(fork: str) -> str:
    name = f"{fork}#join"
    return name if len(name.encode()) <= LONGEST_ID else "join"


def _decided(way: _Way, condition: str) -> _Way:
    return msgspec.structs.replace(way, decided_by=(condition, *way.decided_by))
