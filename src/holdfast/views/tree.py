"""An instance as a tree: the shape of its flow, and beside every node its state."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.graph.model import Behaviour, Node
from holdfast.store.reads.instances import Step
from holdfast.views.labels import (
    UNREACHED,
    child_words,
    error_of,
    promise_of,
    references_of,
    said,
    state_of,
    words_of,
)
from holdfast.views.paths import Item, Way, main_path, names_on
from holdfast.views.record import Record

MOST_BRANCHES: Final = 20  # of a fork; the others are counted
_SETTLED: Final = frozenset({UNREACHED, "completed", "confirmed", "skipped", "cancelled", "rolled_back"})


class Tone(StrEnum):
    """Tone of a remark: beside the point, plain, or a problem."""

    QUIET = "quiet"
    PLAIN = "plain"
    PROBLEM = "problem"


class Line(msgspec.Struct):
    """A line of the tree: a node with its state, or a remark below one.

    `indent` is the drawing left of it, `words` have a column of their own. The state of a node sets its tone.
    """

    indent: str
    state: str  # "": a remark
    name: str
    words: str = ""
    tone: Tone = Tone.PLAIN


def lines_of(record: Record, *, everything: bool = False) -> list[Line]:
    """Lay out an instance from top to bottom; `everything` keeps all branches of wide forks and completed sub-flows."""
    tree = _Tree(record, everything, [])
    tree.whole("")
    return tree.lines


class _Tree:
    def __init__(self, record: Record, everything: bool, lines: list[Line]) -> None:
        self._record = record
        self._everything = everything
        self.lines = lines

    def whole(self, indent: str) -> None:
        """Draw all of the instance, and inside it its sub-flows."""
        graph = self._record.graph
        if graph is None:
            self.remark(indent, "The definition cannot be read; these are the steps as they happened.")
            self.strays(set(), indent)
        else:
            path = main_path(graph)
            self.way(path, indent, indent)
            self.strays(set(names_on(path)), indent)

    def way(self, way: Way, first: str, rest: str) -> None:
        """Draw the items of a way below one another; `first` indents its first line, `rest` all others."""
        for item in way.items:
            self._item(item, first, rest)
            first = rest

    def remark(self, indent: str, text: str, tone: Tone = Tone.QUIET) -> None:
        self.lines.append(Line(indent, "", text, tone=tone))

    def strays(self, known: set[str], indent: str) -> None:
        """Draw the visits of nodes to which no path of the present graph leads."""
        for name, visits in self._record.visits.items():
            if name not in known and visits[0].behaviour != "end":
                self._visits(name, None, visits, indent, indent)

    def _item(self, item: Item, first: str, rest: str) -> None:
        node, record = item.node, self._record
        visits = record.visits.get(node.id, [])
        below = f"{rest}│  " if item.branches or item.others else f"{rest}   "
        if visits:
            self._visits(node.id, node, visits, first, below)
        else:
            self.lines.append(Line(first, UNREACHED, node.id, promise_of(node, record.graph)))
        if item.branches:
            self._branches(item, rest)
        chosen = None if not visits else visits[-1].chosen_edge_ids
        for number, way in enumerate(item.others, start=1):
            self._side_way(way, rest, chosen, is_last=number == len(item.others))

    def _visits(self, name: str, node: Node | None, visits: list[Step], first: str, below: str) -> None:
        """Draw the last visit, with the problems and compensations of those before it."""
        last, record = visits[-1], self._record
        state = state_of(last, record)
        words = words_of(last, node, record)
        laps = sum(visit.status != "superseded" for visit in visits)
        if laps > 1:
            words = f"{words} · visit {laps}"
        self.lines.append(Line(first, state, name, words))
        for visit in visits:
            is_last = visit is last
            if is_last or visit.status == "superseded":
                self._problem(visit, below, is_last=is_last)
            self._compensations(visit, below)

    def _problem(self, visit: Step, below: str, *, is_last: bool) -> None:
        error = error_of(visit)
        if error:
            self.remark(below, error if is_last else f"before: {error}", Tone.PROBLEM if is_last else Tone.QUIET)
        for reference in references_of(visit, self._record):
            self.remark(below, reference, Tone.PLAIN)
        self._sub_flow(visit, below)
        for letter in self._record.letters_by_step.get(visit.id, []):
            self.remark(below, f"dead letter {letter.id}", Tone.PROBLEM)

    def _sub_flow(self, visit: Step, below: str) -> None:
        """Draw the sub-flow of a visit: a line if it has completed, else its tree too."""
        id, child = self._record.started.get(visit.id), self._record.children.get(visit.id)
        if id is None:
            return
        self.remark(below, child_words(id, child), Tone.PLAIN)
        if child is not None and (self._everything or child.instance.status != "completed"):
            _Tree(child, self._everything, self.lines).whole(f"{below}   ")

    def _compensations(self, visit: Step, below: str) -> None:
        record = self._record
        nodes = {} if record.graph is None else record.graph.nodes
        for row in record.undone.get(visit.id, []):
            state = state_of(row, record)
            words = words_of(row, nodes.get(row.name), record)
            place = f"run {row.run + 1}" if row.run else f"undo {row.detail['ordinal'] + 1} of {record.planned}"
            self.lines.append(Line(f"{below}↶ ", state, row.name, f"{words} · {place}"))
            self._problem(row, f"{below}     ", is_last=True)

    # --- branches and side ways ------------------------------------------------------------------------------------

    def _branches(self, item: Item, rest: str) -> None:
        shown, left = self._chosen(item.branches)
        for number, way in enumerate(shown, start=1):
            is_last = number == len(shown) and not left
            self._branch(way, f"{rest}{'└─ ' if is_last else '├─ '}", f"{rest}{'   ' if is_last else '│  '}")
        if left:
            counts = Counter(self._state_of_way(way) for way in left)
            told = ", ".join(f"{count} {said(state)}" for state, count in counts.most_common())
            self.remark(f"{rest}└─ ", f"… {len(left)} more branches: {told} (--all shows them)")

    def _branch(self, way: Way, first: str, rest: str) -> None:
        if not way.items:
            self.remark(first, _destination(way))
            return
        self.way(way, first, rest)
        if way.to is not None and not way.meets:
            self.remark(rest, _destination(way))

    def _chosen(self, ways: list[Way]) -> tuple[list[Way], list[Way]]:
        """Choose the branches to draw, in a wide fork only unsettled ones, and return them and the others."""
        if self._everything or len(ways) <= MOST_BRANCHES:
            return ways, []
        lively = [way for way in ways if self._state_of_way(way) not in _SETTLED][:MOST_BRANCHES]
        wanted = {id(way) for way in lively or ways[:1]}
        return [way for way in ways if id(way) in wanted], [way for way in ways if id(way) not in wanted]

    def _state_of_way(self, way: Way) -> str:
        """The liveliest state on a branch: the first that is not settled, else the last."""
        states = [
            state_of(self._record.visits[item.node.id][-1], self._record)
            for item in way.items
            if item.node.id in self._record.visits
        ]
        return next((state for state in states if state not in _SETTLED), states[-1] if states else UNREACHED)

    def _side_way(self, way: Way, rest: str, chosen: list[str] | None, *, is_last: bool) -> None:
        """Draw a side way. `chosen`: the edges that the last visit took; None: it is still open, or there is none."""
        is_taken = chosen is not None and way.edge in chosen
        remark = " (taken)" if is_taken else "" if chosen is None else " (not taken)"
        tone = Tone.PLAIN if is_taken else Tone.QUIET
        first, below = (f"{rest}└─ ", f"{rest}   ") if is_last else (f"{rest}├─ ", f"{rest}│  ")
        if not way.items:
            self.remark(first, f"{way.label} {_destination(way)}{remark}", tone)
            return
        self.remark(first, f"{way.label}{remark}", tone)
        self.way(way, below, below)
        if way.to is not None or not _is_final(way):
            self.remark(below, _destination(way))


def _is_final(way: Way) -> bool:
    """Check whether the last node of a way is itself an end."""
    return way.items[-1].node.behaviour is Behaviour.END


def _destination(way: Way) -> str:
    return "→ ends" if way.to is None else f"→ {way.to}"
