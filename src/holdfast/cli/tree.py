"""An instance as a tree: the shape of its flow, and beside every node what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
from rich.text import Text

from holdfast.cli.paths import Item, Way, main_path, names_on
from holdfast.cli.record import Record
from holdfast.cli.wording import LOOKS, UNREACHED, child_words, error_of, promise_of, references_of, state_of, words_of
from holdfast.compiler.graph import Behaviour, Node
from holdfast.store.reads import Step

WIDEST_NAME: Final = 40
MOST_BRANCHES: Final = 20  # of a fork; the others are counted
_SETTLED: Final = frozenset({UNREACHED, "completed", "confirmed", "skipped", "cancelled", "rolled_back"})


class Line(msgspec.Struct):
    """`name` stands after the tree and its sign; `words` stand in a column of their own."""

    indent: str
    state: str  # "": a remark without a sign
    name: str
    words: str = ""
    style: str = ""


class Drawing(msgspec.Struct, frozen=True):
    width: int
    signs: bool = True  # False: the terminal knows only ASCII
    everything: bool = False


def draw(record: Record, drawing: Drawing) -> list[Text]:
    tree = _Tree(record, drawing, [])
    tree.whole("")
    widest = max((len(_lead(line, drawing)) for line in tree.lines if line.state), default=0)
    return [_rendered(line, min(widest, WIDEST_NAME), drawing) for line in tree.lines]


class _Tree:
    def __init__(self, record: Record, drawing: Drawing, lines: list[Line]) -> None:
        self._record = record
        self._drawing = drawing
        self.lines = lines

    def whole(self, indent: str) -> None:
        """All of the instance, and inside it the sub-flows that are told of."""
        graph = self._record.graph
        if graph is None:
            self.remark(indent, "The definition cannot be read; these are the steps as they happened.")
            self.strays(set(), indent)
        else:
            path = main_path(graph)
            self.way(path, indent, indent)
            self.strays(set(names_on(path)), indent)

    def way(self, way: Way, first: str, rest: str) -> None:
        """The items of a way below one another; `first` stands before its first line, `rest` before all others."""
        for item in way.items:
            self._item(item, first, rest)
            first = rest

    def remark(self, indent: str, text: str, style: str = "dim") -> None:
        self.lines.append(Line(indent, "", text, style=style))

    def strays(self, known: set[str], indent: str) -> None:
        """What happened at nodes to which no path of the present graph leads."""
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
            self.lines.append(Line(first, UNREACHED, node.id, promise_of(node, record.graph), "dim"))
        if item.branches:
            self._branches(item, rest)
        chosen = None if not visits else visits[-1].chosen_edge_ids
        for number, way in enumerate(item.others, start=1):
            self._side_way(way, rest, chosen, is_last=number == len(item.others))

    def _visits(self, name: str, node: Node | None, visits: list[Step], first: str, below: str) -> None:
        """The last visit, and what is worth knowing of those before it."""
        last, record = visits[-1], self._record
        state = state_of(last, record)
        words = words_of(last, node, record)
        laps = sum(visit.status != "superseded" for visit in visits)
        if laps > 1:
            words = f"{words} · visit {laps}"
        self.lines.append(Line(first, state, name, words, LOOKS[state].style))
        for visit in visits:
            is_last = visit is last
            if is_last or visit.status == "superseded":
                self._problem(visit, below, is_last=is_last)
            self._compensations(visit, below)

    def _problem(self, visit: Step, below: str, *, is_last: bool) -> None:
        error = error_of(visit)
        if error:
            self.remark(below, error if is_last else f"before: {error}", "red" if is_last else "dim")
        for reference in references_of(visit, self._record):
            self.remark(below, reference, "")
        self._sub_flow(visit, below)
        for letter in self._record.letters_by_step.get(visit.id, []):
            self.remark(below, f"dead letter {letter.id}", "red")

    def _sub_flow(self, visit: Step, below: str) -> None:
        """One that completed is told of in a line: nothing goes on there any more."""
        id, child = self._record.started.get(visit.id), self._record.children.get(visit.id)
        if id is None:
            return
        self.remark(below, child_words(id, child), "")
        if child is not None and (self._drawing.everything or child.instance.status != "completed"):
            _Tree(child, self._drawing, self.lines).whole(f"{below}   ")

    def _compensations(self, visit: Step, below: str) -> None:
        record = self._record
        nodes = {} if record.graph is None else record.graph.nodes
        for row in record.undone.get(visit.id, []):
            state = state_of(row, record)
            words = words_of(row, nodes.get(row.name), record)
            place = f"run {row.run + 1}" if row.run else f"undo {row.detail['ordinal'] + 1} of {record.planned}"
            self.lines.append(Line(f"{below}↶ ", state, row.name, f"{words} · {place}", LOOKS[state].style))
            self._problem(row, f"{below}     ", is_last=True)

    # --- what branches off -----------------------------------------------------------------------------------------

    def _branches(self, item: Item, rest: str) -> None:
        shown, left = self._chosen(item.branches)
        for number, way in enumerate(shown, start=1):
            is_last = number == len(shown) and not left
            self._branch(way, f"{rest}{'└─ ' if is_last else '├─ '}", f"{rest}{'   ' if is_last else '│  '}")
        if left:
            counts = Counter(self._state_of_way(way) for way in left)
            told = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts.most_common())
            self.remark(f"{rest}└─ ", f"… {len(left)} more branches: {told} (--all shows them)")

    def _branch(self, way: Way, first: str, rest: str) -> None:
        if not way.items:
            self.remark(first, _destination(way))
            return
        self.way(way, first, rest)
        if way.to is not None and not way.meets:
            self.remark(rest, _destination(way))

    def _chosen(self, ways: list[Way]) -> tuple[list[Way], list[Way]]:
        """The branches to draw, those where something goes on first, and the others."""
        if self._drawing.everything or len(ways) <= MOST_BRANCHES:
            return ways, []
        lively = [way for way in ways if self._state_of_way(way) not in _SETTLED][:MOST_BRANCHES]
        wanted = {id(way) for way in lively or ways[:1]}
        return [way for way in ways if id(way) in wanted], [way for way in ways if id(way) not in wanted]

    def _state_of_way(self, way: Way) -> str:
        """The liveliest state on a branch: what goes on or went wrong before what is over."""
        states = [
            state_of(self._record.visits[item.node.id][-1], self._record)
            for item in way.items
            if item.node.id in self._record.visits
        ]
        return next((state for state in states if state not in _SETTLED), states[-1] if states else UNREACHED)

    def _side_way(self, way: Way, rest: str, chosen: list[str] | None, *, is_last: bool) -> None:
        """`chosen` are the edges the last visit went on by; None: it is still there, or nobody has come yet."""
        is_taken = chosen is not None and way.edge in chosen
        remark = " (taken)" if is_taken else "" if chosen is None else " (not taken)"
        style = "" if is_taken else "dim"
        first, below = (f"{rest}└─ ", f"{rest}   ") if is_last else (f"{rest}├─ ", f"{rest}│  ")
        if not way.items:
            self.remark(first, f"{way.label} {_destination(way)}{remark}", style)
            return
        self.remark(first, f"{way.label}{remark}", style)
        self.way(way, below, below)
        if way.to is not None or not _is_final(way):
            self.remark(below, _destination(way))


def _is_final(way: Way) -> bool:
    """Its last node says itself that everything ends there."""
    return way.items[-1].node.behaviour is Behaviour.END


def _destination(way: Way) -> str:
    return "→ ends" if way.to is None else f"→ {way.to}"


def _lead(line: Line, drawing: Drawing) -> str:
    sign = ""
    if line.state:
        look = LOOKS[line.state]
        sign = f"{look.glyph if drawing.signs else look.plain} "
    return f"{line.indent}{sign}{line.name}"


def _rendered(line: Line, column: int, drawing: Drawing) -> Text:
    indent = len(line.indent)
    if not line.words:
        lead = fit(_lead(line, drawing), drawing.width)
        return Text.assemble((lead[:indent], "dim"), (lead[indent:], line.style))
    lead = _lead(line, drawing).ljust(column)
    room = max(drawing.width - len(lead) - 2, 20)
    words = [fit(part, room) for part in _folded(line.words.split(" · "), room)]
    text = Text.assemble((lead[:indent], "dim"), (lead[indent:], line.style), "  ", (words[0], line.style))
    below = line.indent.translate(_BELOW)
    for more in words[1:]:
        text.append(f"\n{below}", "dim")
        text.append(f"{' ' * (len(lead) + 2 - indent)}{more}", line.style)
    return text


def _folded(parts: Iterable[str], room: int) -> list[str]:
    """As many parts on a line as fit; a part is never torn."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= room:
            lines[-1] = f"{lines[-1]} · {part}"
        else:
            lines.append(part)
    return lines


def fit(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(width - 1, 1)]}…"


_BELOW: Final = str.maketrans({"├": "│", "└": " ", "─": " ", "↶": " "})
