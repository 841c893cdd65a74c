"""The text of one workflow, cut out of its file so that it reads the same alone."""

from __future__ import annotations

import re
from typing import Final

_MARGIN: Final = " " * 4
_KEEPS_GAPS: Final = re.compile(r"[|>][0-9]?\+")  # a block text that keeps the empty lines at its end


def cut_out(text: str, begin: int, end: int) -> str | None:
    """Cut an entry of a list out as a file of its own; None if moving its lines would change their meaning."""
    if _KEEPS_GAPS.search(text, begin, end):
        return None
    column = begin - (text.rfind("\n", 0, begin) + 1)
    first, *others = text[begin:end].rstrip().split("\n")
    while others and not others[-1][:column].isspace():
        if others[-1].strip() and not others[-1].lstrip().startswith("#"):
            return None
        others.pop()  # a comment or a gap that belongs to the next entry
    moved = [_moved(line, column) for line in others]
    if any(line is None for line in moved):
        return None
    lines = [f"  - {first}", *(line for line in moved if line is not None)]
    return "\n".join(["workflows:", *lines]).rstrip() + "\n"


def _moved(line: str, column: int) -> str | None:
    if not line.strip():
        return ""
    if line[:column].strip(" "):
        return f"{_MARGIN}{line.lstrip()}" if line.lstrip().startswith("#") else None
    return _MARGIN + line[column:]
