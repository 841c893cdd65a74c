"""Draw the graph of a document as SVG for a page: slots as groups, the envelope locked, verbs dotted.

The drawing has classes and no colours, no script, no reference to anything, not even to a part of itself. Every text is
escaped, with unseen characters written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import cycle, pairwise
from typing import Final

import msgspec

from holdfast.graph.drawing.layout import DROP, Ends, Layout, Point, Size, lay_out
from holdfast.graph.drawing.regions import Group, drawn_edges, groups_of, interrupts_of, is_locked, windows_of
from holdfast.graph.envelope import NEVER, short_name
from holdfast.graph.kinds import KINDS, UNKNOWN, Shape
from holdfast.graph.model import Edge, Graph, Node
from holdfast.printable import printable

HEIGHT: Final = 44
PADDING: Final = 16
HEAD: Final = 26  # the title of a group
MARGIN: Final = 72  # beside the drawing, for lines that lead back
RAILS: Final = range(10, 60, 10)  # from the side of the drawing
LETTER: Final = 7  # the width of one
LONGEST: Final = 30  # letters of a label
SIGNS: Final = {"added": "+", "removed": "\N{MINUS SIGN}", "changed": "~"}
_ROUND: Final = frozenset({Shape.STADIUM, Shape.ROUNDED, Shape.CIRCLE, Shape.DOUBLE_CIRCLE})


class Box(msgspec.Struct, frozen=True):
    x: int
    y: int
    width: int
    height: int

    @property
    def top(self) -> Point:
        return self.x + self.width // 2, self.y

    @property
    def bottom(self) -> Point:
        return self.x + self.width // 2, self.y + self.height

    @property
    def left(self) -> Point:
        return self.x, self.y + self.height // 2

    @property
    def right(self) -> Point:
        return self.x + self.width, self.y + self.height // 2


def to_svg(graph: Graph, title: str, marks: Mapping[str, str] | None = None) -> str:
    """Draw a graph, whose nodes come in topological order.

    `marks` says of nodes and edges, by their ids, whether they were added, removed or changed.
    """
    return "".join(_Drawing(graph, marks or {}).lines(title))


class _Drawing:
    def __init__(self, graph: Graph, marks: Mapping[str, str]) -> None:
        self.graph = graph
        self.marks = marks
        self.nodes = {node.id: node for node in graph.nodes}
        self.windows = windows_of(graph)
        self.groups = {group.name: group for group in groups_of(graph)}
        self.edges = [edge for edge in drawn_edges(graph) if edge.source in self.nodes and edge.target in self.nodes]
        self.boxes: dict[str, Box] = {}
        self.frames: dict[str, Box] = {}
        self.bends: dict[Ends, tuple[Point, ...]] = {}
        self.size = self.place()

    # --- places ---

    def place(self) -> Size:
        """Place the nodes of each slot by themselves, then the slots among the nodes of the envelope."""
        order = list(self.nodes)
        sizes = {id: (_width(self.texts(node)), HEIGHT) for id, node in self.nodes.items()}
        inner = {name: self.inside(group, order, sizes) for name, group in self.groups.items()}
        owners = {id: _frame(name) for name, group in self.groups.items() for id in group.nodes}
        for name, layout in inner.items():
            width = max(layout.size[0], _width((self.groups[name].title,)))
            sizes[_frame(name)] = (width + 2 * PADDING, layout.size[1] + HEAD + 2 * PADDING)
        outer = dict.fromkeys(owners.get(id, id) for id in order)
        ends = [(owners.get(edge.source, edge.source), owners.get(edge.target, edge.target)) for edge in self.edges]
        layout = lay_out(list(outer), sizes, [each for each in ends if each[0] != each[1]])
        for id, (x, y) in layout.places.items():
            box = Box(x + MARGIN, y + PADDING, *sizes[id])
            if id in self.nodes:
                self.boxes[id] = box
        for name, found in inner.items():
            x, y = layout.places[_frame(name)]
            self.frames[name] = Box(x + MARGIN, y + PADDING, *sizes[_frame(name)])
            self.move(found, self.frames[name])
        self.lead(layout, owners)
        return layout.size[0] + 2 * MARGIN, layout.size[1] + 2 * PADDING

    def inside(self, group: Group, order: list[str], sizes: Mapping[str, Size]) -> Layout:
        within = frozenset(group.nodes)
        ends = [(edge.source, edge.target) for edge in self.edges if {edge.source, edge.target} <= within]
        return lay_out([id for id in order if id in within], sizes, ends)

    def move(self, layout: Layout, frame: Box) -> None:
        left = frame.x + (frame.width - layout.size[0]) // 2
        top = frame.y + HEAD + PADDING
        for id, (x, y) in layout.places.items():
            self.boxes[id] = Box(x + left, y + top, _width(self.texts(self.nodes[id])), HEIGHT)
        for ends, points in layout.bends.items():
            self.bends[ends] = tuple((x + left, y + top) for x, y in points)

    def lead(self, layout: Layout, owners: Mapping[str, str]) -> None:
        """Lead the edges of the envelope, and those between it and the ports, around the boxes on their way."""
        for edge in self.edges:
            points = layout.bends.get((owners.get(edge.source, edge.source), owners.get(edge.target, edge.target)))
            if points is not None:
                self.bends[edge.source, edge.target] = tuple((x + MARGIN, y + PADDING) for x, y in points)

    # --- lines ---

    def lines(self, title: str) -> Iterator[str]:
        width, height = self.size
        yield (
            f'<svg class="graph" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
            f"<title>{_text(title)}</title>\n"
        )
        for name, frame in sorted(self.frames.items()):
            yield f'<g class="slot"><rect x="{frame.x}" y="{frame.y}" width="{frame.width}" height="{frame.height}"/>'
            title = _text(_cut(self.groups[name].title))
            yield f'<text x="{frame.x + PADDING}" y="{frame.y + 19}">{title}</text></g>\n'
        rails = cycle(range(width - RAILS[0], width - RAILS[-1], -RAILS.step))
        for edge in self.edges:
            yield self.edge(edge, rails)
        rails = cycle(RAILS)
        for found in interrupts_of(self.graph):
            source = self.frames[found.group] if found.group is not None else self.boxes[found.source or ""]
            target = self.boxes[found.target]
            rail = next(rails)
            yield _way(
                "verb",
                _around(source.left, target.left, rail),
                found.verb,
                _into_left(target),
                at=_on(rail, source, target),
            )
        for id, node in self.nodes.items():
            yield from self.node(id, node)
        yield "</svg>\n"

    def edge(self, edge: Edge, rails: Iterator[int]) -> str:
        source, target = self.boxes[edge.source], self.boxes[edge.target]
        names = ["never"] if edge.on == NEVER else []
        mark = self.marks.get(edge.id)
        classes = " ".join(["edge", *names, *([mark] if mark else [])])
        label = _label(edge)
        if source.y + source.height <= target.y:
            points = [source.bottom, *self.bends.get((edge.source, edge.target), ()), target.top]
            middle = points[len(points) // 2 - 1], points[len(points) // 2]
            at = (middle[0][0] + middle[1][0]) // 2, (middle[0][1] + middle[1][1]) // 2
            return _way(classes, _down(points), label, _into_top(target), at=at, anchor="middle")
        rail = next(rails)
        path = _around(source.right, target.right, rail)
        return _way(classes, path, label, _into_right(target), at=_on(rail, source, target), anchor="end")

    def node(self, id: str, node: Node) -> Iterator[str]:
        box, mark = self.boxes[id], self.marks.get(id)
        locked = is_locked(self.graph, id)
        classes = " ".join(["node", *(["locked"] if locked else []), *([mark] if mark else [])])
        name, about = self.texts(node)
        shape = KINDS.get(node.kind, UNKNOWN).shape
        corner = HEIGHT // 2 if shape in _ROUND else 4
        yield f'<g class="{classes}"><title>{_text(id)}</title>'
        yield f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="{corner}"/>'
        x, y = box.top
        yield f'<text x="{x}" y="{y + 19}">{_text(name)}</text>'
        yield f'<text class="soft" x="{x}" y="{y + 35}">{_text(about)}</text>'
        if mark in SIGNS:
            yield f'<text class="sign" x="{box.x + 11}" y="{y + 16}">{SIGNS[mark]}</text>'
        if locked:
            yield f'<path class="lock" d="M{box.x + box.width - 17} {y + 10}v-2a3 3 0 0 1 6 0v2m-8 0h10v7h-10z"/>'
        yield "</g>\n"

    def texts(self, node: Node) -> tuple[str, str]:
        label = KINDS[node.kind].label if node.kind in KINDS else node.kind
        about = f"{label}, {self.windows[node.id]}" if node.id in self.windows else label
        return _cut(short_name(node.id)), _cut(about)


def _frame(slot: str) -> str:
    return f" slot {slot}"  # no id of a node has a blank in front


def _width(texts: tuple[str, ...]) -> int:
    return max(96, max(len(text) for text in texts) * LETTER + 44)


def _label(edge: Edge) -> str:
    event = "never taken" if edge.on == NEVER else "" if edge.on == "completed" else edge.on
    condition = f"if {edge.when}" if edge.when is not None else ""
    return edge.label or " ".join(part for part in (event, condition) if part)


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _text(text: str) -> str:
    return escape(printable(text))


# --- paths ------------------------------------------------------------------------------------------------------------


def _way(classes: str, path: str, label: str, tip: str, *, at: Point, anchor: str = "start") -> str:
    head = f'<g class="{classes}"><path d="{path}"/><path class="tip" d="{tip}"/>'
    if not label:
        return f"{head}</g>\n"
    text = f"{_text(_cut(label))}<title>{_text(label)}</title>"
    return f'{head}<text text-anchor="{anchor}" x="{at[0]}" y="{at[1] + 4}">{text}</text></g>\n'


def _down(points: list[Point]) -> str:
    path = f"M{points[0][0]} {points[0][1]}"
    for (x, y), (next_x, next_y) in pairwise(points):
        half = max((next_y - y) // 2, DROP // 3)
        path += f"C{x} {y + half} {next_x} {next_y - half} {next_x} {next_y}"
    return path


def _around(source: Point, target: Point, rail: int) -> str:
    """Lead a line back along a rail beside the drawing."""
    (x, y), (end_x, end_y) = source, target
    turn = max(-30, min(30, (end_y - y) // 2))
    return (
        f"M{x} {y}C{rail} {y} {rail} {y} {rail} {y + turn}L{rail} {end_y - turn}"
        f"C{rail} {end_y} {rail} {end_y} {end_x} {end_y}"
    )


def _on(rail: int, source: Box, target: Box) -> Point:
    return rail, (source.left[1] + target.left[1]) // 2


def _into_top(box: Box) -> str:
    x, y = box.top
    return f"M{x} {y}l-4 -8h8z"


def _into_left(box: Box) -> str:
    x, y = box.left
    return f"M{x} {y}l-8 -4v8z"


def _into_right(box: Box) -> str:
    x, y = box.right
    return f"M{x} {y}l8 -4v8z"
