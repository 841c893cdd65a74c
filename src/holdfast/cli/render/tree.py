"""Draw the tree of an instance on a terminal: signs and colours by state, words in a column, cut to its width."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from rich.text import Text

from holdfast.cli.render.looks import LOOKS
from holdfast.cli.render.output import fit
from holdfast.printable import printable
from holdfast.views.record import Record
from holdfast.views.tree import Line, Tone, lines_of

WIDEST_NAME: Final = 40
_TONES: Final = {Tone.QUIET: "dim", Tone.PLAIN: "", Tone.PROBLEM: "red"}


class Drawing(msgspec.Struct, frozen=True):
    width: int
    signs: bool = True  # False: the terminal knows only ASCII
    everything: bool = False


def draw(record: Record, drawing: Drawing) -> list[Text]:
    lines = lines_of(record, everything=drawing.everything)
    widest = max((len(_lead(line, drawing)) for line in lines if line.state), default=0)
    return [_rendered(line, min(widest, WIDEST_NAME), drawing) for line in lines]


def _lead(line: Line, drawing: Drawing) -> str:
    sign = ""
    if line.state:
        look = LOOKS[line.state]
        sign = f"{look.glyph if drawing.signs else look.plain} "
    return f"{line.indent}{sign}{printable(line.name)}"


def _style(line: Line) -> str:
    return LOOKS[line.state].style if line.state else _TONES[line.tone]


def _rendered(line: Line, column: int, drawing: Drawing) -> Text:
    indent, style = len(line.indent), _style(line)
    if not line.words:
        lead = fit(_lead(line, drawing), drawing.width)
        return Text.assemble((lead[:indent], "dim"), (lead[indent:], style))
    lead = _lead(line, drawing).ljust(column)
    room = max(drawing.width - len(lead) - 2, 20)
    words = [fit(part, room) for part in _folded(line.words.split(" · "), room)]
    text = Text.assemble((lead[:indent], "dim"), (lead[indent:], style), "  ", (words[0], style))
    below = line.indent.translate(_BELOW)
    for more in words[1:]:
        text.append(f"\n{below}", "dim")
        text.append(f"{' ' * (len(lead) + 2 - indent)}{more}", style)
    return text


def _folded(parts: Iterable[str], room: int) -> list[str]:
    """Fold parts into lines, as many on a line as fit; a part is never broken."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= room:
            lines[-1] = f"{lines[-1]} · {part}"
        else:
            lines.append(part)
    return lines


_BELOW: Final = str.maketrans({"├": "│", "└": " ", "─": " ", "↶": " "})
