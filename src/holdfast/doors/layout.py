"""Python code laid out: on one line where it fits, else a part per line."""

from __future__ import annotations

import json
from typing import Any, Final, cast

import msgspec

WIDTH: Final = 100
INDENT: Final = 4


class Group(msgspec.Struct, frozen=True):
    """Parts between brackets: on one line if they fit, else each on a line of its own."""

    opening: str
    parts: tuple[tuple[str, Layout], ...]  # each with what stands before it: `name=` or `"key": `
    closing: str = ")"


class Chain(msgspec.Struct, frozen=True):
    """A chain of calls: a flow or a branch."""

    calls: tuple[Group, ...]


Layout = str | Group | Chain


def value_layout(value: Any) -> Layout:
    if isinstance(value, dict):
        entries = cast(dict[str, Any], value).items()
        return Group("{", tuple((f"{_text(key)}: ", value_layout(item)) for key, item in entries), "}")
    if isinstance(value, list | tuple):
        return Group("[", tuple(("", value_layout(item)) for item in cast(list[Any], value)), "]")
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    # JSON writes text as Python does, in the quotes people expect; what cannot be seen is spelled out.
    return json.dumps(value, ensure_ascii=False) if value.isprintable() else repr(value)


def shown(layout: Layout, indent: int) -> str:
    flat = _flat(layout)
    if isinstance(layout, str) or len(flat) + indent < WIDTH:
        return flat
    margin = "\n" + " " * indent
    if isinstance(layout, Chain):
        return margin.join(shown(call, indent) for call in layout.calls)
    inner = indent + INDENT
    parts = (f"{margin}{' ' * INDENT}{prefix}{shown(part, inner)}," for prefix, part in layout.parts)
    return f"{layout.opening}{''.join(parts)}{margin}{layout.closing}"


def _flat(layout: Layout) -> str:
    if isinstance(layout, str):
        return layout
    if isinstance(layout, Chain):
        return "".join(_flat(call) for call in layout.calls)
    return layout.opening + ", ".join(prefix + _flat(part) for prefix, part in layout.parts) + layout.closing
