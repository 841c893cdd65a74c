"""What a step of long ago is called today: migrations give nodes other names, rows keep the one they were born with.

A row of `@migrate` tells which node became which. A name is followed through every migration that came after its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

Moment = tuple[int, int]  # version, ordinal
MIGRATE = "@migrate"


class _Migration(msgspec.Struct):
    nodes: dict[str, str] = {}


_migration = msgspec.json.Decoder(_Migration).decode


def names_today(migrations: Iterable[tuple[Moment, bytes | None]]) -> Callable[[str, Moment], str]:
    """From when each migration was and the detail of its row: a function from a name and its moment to today's name."""
    renamed = [(moment, _migration(detail or b"{}").nodes) for moment, detail in sorted(migrations)]

    def today(node: str, since: Moment) -> str:
        for moment, nodes in renamed:
            if moment > since:
                node = nodes.get(node, node)
        return node

    return today
