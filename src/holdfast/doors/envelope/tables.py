"""Decision tables as the compiler takes them: the versions that there are, of which a patch pins one each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec


class PinnedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One version of a decision table."""

    name: str
    version: int
    hash: str
    table: dict[str, Any]  # its rows, and how they are read


class Tables:
    """The decision tables that a patch may name."""

    def __init__(self, tables: Iterable[PinnedTable] = (), *, known: Iterable[str] = ()) -> None:
        self._known = frozenset(known)  # there are such tables, but the patch takes none of them
        self._versions: dict[tuple[str, int], PinnedTable] = {}
        self._newest: dict[str, PinnedTable] = {}
        for table in tables:
            self._versions[table.name, table.version] = table
            newest = self._newest.get(table.name)
            if newest is None or newest.version < table.version:
                self._newest[table.name] = table

    def find(self, name: str, version: int | None) -> PinnedTable | None:
        """Find a version of a table, or its newest one."""
        return self._newest.get(name) if version is None else self._versions.get((name, version))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._known.union(self._newest)))
