"""Values that people write plainly, spelled as expressions."""

from __future__ import annotations

from holdfast.graph.expressions.timestamps import read_moment


def moment(until: str) -> str:
    """Write `until` as an expression; a literal time becomes a quoted text."""
    return until if read_moment(until) is None else quoted(until)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
