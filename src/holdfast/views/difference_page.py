"""A difference as a page of HTML with a drawing of each side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.graph.compiled import Compiled, graph_of
from holdfast.graph.difference.compare import difference
from holdfast.graph.difference.model import Difference, PartChange
from holdfast.graph.drawing.svg import SIGNS, to_svg
from holdfast.views.difference_words import ARROW, Section, heading, lines_of, sections_of, side_words
from holdfast.views.page import page_of, text_of

_STYLE: Final = """
:root { --add: #1a7f37; --gone: #b42318; --new: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --add: #56d364; --gone: #ff7b72; --new: #e3b341; } }
body { max-width: 90rem; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; overflow-x: auto; border: 1px solid var(--line); border-radius: 4px; padding: .75rem; }
figcaption { font-weight: 600; } td:first-child { width: 1.5rem; text-align: center; font-weight: 700; }
tr.added td:first-child { color: var(--add); } tr.removed td:first-child { color: var(--gone); }
tr.changed td:first-child { color: var(--new); }
.graph { font: 12px system-ui, sans-serif; } .graph text { fill: var(--ink); }
.graph rect { fill: var(--box); stroke: var(--ink); } .graph path { fill: none; stroke: var(--soft); }
.graph .node text { text-anchor: middle; } .graph .node text.soft { fill: var(--soft); font-size: 10px; }
.graph .slot rect { fill: none; stroke: var(--mark); stroke-dasharray: 6 4; } .graph .slot text { fill: var(--mark); }
.graph .locked rect { stroke-width: 3; } .graph path.lock { stroke: var(--ink); }
.graph .edge text, .graph .verb text { font-size: 10px; paint-order: stroke;
  stroke: var(--back); stroke-width: 3px; }
.graph .verb path, .graph .never path { stroke-dasharray: 2 4; }
.graph path.tip { fill: var(--soft); stroke-dasharray: none; }
.graph .added rect, .graph .added path { stroke: var(--add); } .graph .removed rect { stroke: var(--gone); }
.graph .removed path { stroke: var(--gone); } .graph .changed rect, .graph .changed path { stroke: var(--new); }
"""


def difference_page(before: Compiled, after: Compiled, names: tuple[str, str] | None = None) -> str:
    """Write the page. `names` are the names of both sides; without them their versions."""
    found = difference(before, after)
    shown = names or (side_words(found.before), side_words(found.after))
    title = f"{found.after.type}: {shown[0]} {ARROW} {shown[1]}"
    facts = [("Before", text_of(shown[0])), ("After", text_of(shown[1])), ("Changes", str(len(list(found.parts))))]
    return "".join(page_of(title, facts, _body(found, (before, after), shown), _STYLE))


def _body(found: Difference, sides: tuple[Compiled, Compiled], names: tuple[str, str]) -> Iterator[str]:
    marks = {part.id: part.change for part in found.parts if part.noun in ("node", "edge")}
    yield '<div class="sides">\n'
    for side, name in zip(sides, names, strict=True):
        drawing = to_svg(graph_of(side), name, marks)
        yield f"<figure><figcaption>{text_of(name)}</figcaption>\n{drawing}</figure>\n"
    yield "</div>\n"
    if found.is_empty:
        yield "<p>No difference.</p>\n"
    for section in sections_of(found):
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield f"<h2>{text_of(section.title)}</h2>\n"
    if not section.parts:
        return
    yield '<table>\n<thead><tr><th scope="col">Change</th><th scope="col">Part</th>'
    yield '<th scope="col">Details</th></tr></thead>\n<tbody>\n'
    for part in section.parts:
        yield _row(part)
    yield "</tbody>\n</table>\n"


def _row(part: PartChange) -> str:
    details = "<br>".join(text_of(f"{aspect}: {text}" if aspect else text) for aspect, text in lines_of(part))
    name = text_of(heading(part))
    return (
        f'<tr class="{part.change}"><td title="{part.change}">{SIGNS[part.change]}</td>'
        f'<th scope="row">{name}</th><td>{details}</td></tr>\n'
    )
