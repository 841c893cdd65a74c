"""Today's names of old steps: migrations rename nodes, while rows keep the name they were written with.

A row of `@migrate` has the renamed nodes. A name is followed through every migration that came after its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from holdfast.core.model.control_rows import Migrated

Moment = tuple[int, int]  # version, ordinal
MIGRATE = Migrated.node


class _Migration(msgspec.Struct):
    nodes: dict[str, str] = {}


_migration = msgspec.json.Decoder(_Migration).decode


def names_today(migrations: Iterable[tuple[Moment, bytes | None]]) -> Callable[[str, Moment], str]:
    """Make a function from a node's name and its moment to today's name, given each migration's moment and detail."""
    renamed = [(moment, _migration(detail or b"{}").nodes) for moment, detail in sorted(migrations)]

    def today(node: str, since: Moment) -> str:
        for moment, nodes in renamed:
            if moment > since:
                node = nodes.get(node, node)
        return node

    return today
