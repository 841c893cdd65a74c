"""Text from strangers, made fit for a terminal or a log: on one line, with no characters that steer.

A name, a key or an error may hold any text a caller sent: line breaks that forge lines of a log, escape sequences that
move the cursor or set a title, marks that turn the direction of writing around. `printable` writes each such character
as Python would (`\\n`, `\\x1b`, `\\u202e`) and leaves all other text, of every script, as it is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_JOINERS: Final = "\u200c\u200d"  # part of words and emoji; they neither steer nor hide
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_UNPRINTABLE_ASCII: Final = re.compile(r"[\x00-\x1f\x7f]")
INDENT: Final = "  "


def printable(text: str) -> str:
    """Escape every character that is not itself seen: controls, line breaks, marks of direction, halves of a pair."""
    if text.isprintable():
        return text
    if text.isascii():
        return _UNPRINTABLE_ASCII.sub(lambda found: _escaped(found[0]), text)
    return "".join(_escaped(one) if _is_unseen(one) else one for one in text)


def printable_lines(text: str, indent: str = "") -> str:
    """Keep the line breaks of `text`, a traceback or a drawing, and escape the rest; `indent` begins each line."""
    return "\n".join(f"{indent}{printable(line)}" for line in text.split("\n"))


def _is_unseen(one: str) -> bool:
    return not one.isprintable() and one not in _JOINERS and unicodedata.category(one) in _UNSEEN


def _escaped(one: str) -> str:
    named = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
    if one in named:
        return named[one]
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
