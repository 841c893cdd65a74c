"""The SQL of the store: one statement per file below `sql/`, loaded once, parameters typed by their casts.

Rules the files follow so that no plan can flip: every equality comes out of the `unnest`, the leading key is written
`t.key = any(array[u.key])` (indexable, but neither hash- nor merge-joinable, so probing the primary key is the only
plan there is), and row counts that must hold are checked by `holdfast.expect` on the server, before COMMIT.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, NamedTuple

from holdfast.store.pg.wire import array_encoder, scalar_encoder, single_encoder

NOT_PREPARED: Final = frozenset({"admin", "caller"})  # folders of SQL that other connections run
TEXTS: Final[dict[bytes, bytes]] = {}  # what a session can prepare, by name

_PARAMETER: Final = re.compile(r"\$(\d+)::([a-z0-9]+)(\[\])?")
_BY_MONTH: Final = re.compile(rb"holdfast\.(steps|events)\b")
_ARRAYS: Final = re.compile(rb"unnest\(((?:\s*\$\d+::[a-z0-9]+\[\],?)+)\)")
# What the commits of a lone flow consist of. For one row, values are cheaper than arrays of one, for both sides.
LONELY: Final = frozenset(
    {"begin_instances", "advance_steps", "finish_instances", "undo_steps", "end_rollbacks", "insert_statistics"}
)


class Query(NamedTuple):
    """A statement with its parameters, ready to be sent."""

    name: bytes
    parameters: list[bytes | None]


class Statement:
    """One file of `sql/`. Array parameters come first and take the columns of a batch; scalars follow."""

    def __init__(self, name: str, sql: str) -> None:
        self.name = name.encode()
        self.sql = sql.encode()
        self._months: dict[str, Statement] = {}
        self._lone: Statement | None = None
        self.purpose = sql.splitlines()[0].removeprefix("--").strip()
        kinds = {int(n): (kind, bool(many)) for n, kind, many in _PARAMETER.findall(sql)}
        ordered = [kinds[n] for n in sorted(kinds)]
        if sorted(kinds) != list(range(1, len(kinds) + 1)):
            raise ValueError(f"{name}.sql: every parameter must be cast and numbered without gaps")
        self._columns = [array_encoder(kind) for kind, many in ordered if many]
        self._singles = [single_encoder(kind) for kind, many in ordered if many]
        self._values = [scalar_encoder(kind) for kind, many in ordered if many]
        self._scalars = [scalar_encoder(kind) for kind, many in ordered if not many]
        self.is_lonely = name in LONELY
        if [many for _, many in ordered] != [True] * len(self._columns) + [False] * len(self._scalars):
            raise ValueError(f"{name}.sql: arrays come before scalars")

    def in_month(self, month: str) -> Statement:
        """The same on the partitions of one month, for rows that lie there."""
        found = self._months.get(month)
        if found is None:
            sql = _BY_MONTH.sub(rb"holdfast.\1_" + month.encode(), self.sql)
            found = self._months[month] = self._variant(b"@%b" % month.encode(), sql)
        return found

    @property
    def lone(self) -> Statement:
        """The same for one row: values instead of columns."""
        if self._lone is None:
            sql, count = _ARRAYS.subn(lambda found: b"(values (%b))" % found[1].replace(b"[]", b""), self.sql)
            assert count, self.name
            self._lone = self._variant(b"!", sql)
        return self._lone

    def _variant(self, ending: bytes, sql: bytes) -> Statement:
        other = copy(self)
        other.name, other.sql, other._lone = self.name + ending, sql, None
        TEXTS[other.name] = sql
        return other

    def rows(self, batch: Sequence[tuple[Any, ...]], *scalars: Any) -> Query:
        """Bind a batch of rows, column by column."""
        name, parameters = self.name, list[bytes | None]()
        if len(batch) == 1 and self.is_lonely:
            name = self.lone.name
            parameters += [encode(value) for encode, value in zip(self._values, batch[0], strict=True)]
        elif len(batch) == 1:
            parameters += [encode(value) for encode, value in zip(self._singles, batch[0], strict=True)]
        else:
            columns = zip(*batch, strict=True)
            parameters += [encode(column) for encode, column in zip(self._columns, columns, strict=True)]
        parameters += [encode(value) for encode, value in zip(self._scalars, scalars, strict=True)]
        return Query(name, parameters)

    def one(self, *scalars: Any) -> Query:
        return Query(self.name, [encode(value) for encode, value in zip(self._scalars, scalars, strict=True)])

    def arrays(self, columns: Iterable[Sequence[Any]], *scalars: Any) -> Query:
        """Bind whole columns, which may be empty."""
        parameters: list[bytes | None] = [encode(c) for encode, c in zip(self._columns, columns, strict=True)]
        parameters += [encode(value) for encode, value in zip(self._scalars, scalars, strict=True)]
        return Query(self.name, parameters)


class _Statements:
    """Statements by name: `SQL.close_steps` is `sql/commit/close_steps.sql`, and an unknown name fails at import."""

    def __init__(self) -> None:
        self.all: dict[str, Statement] = {}
        for folder in resources.files("holdfast.store").joinpath("sql").iterdir():
            if folder.name not in NOT_PREPARED:
                self._read(folder)
        TEXTS.update((statement.name, statement.sql) for statement in self.all.values())

    def _read(self, folder: Traversable) -> None:
        for file in folder.iterdir():
            name = file.name.removesuffix(".sql")
            if name in self.all:
                raise ValueError(f"{folder.name}/{file.name}: another folder has a statement of this name")
            self.all[name] = Statement(name, file.read_text(encoding="utf-8"))

    def __getattr__(self, name: str) -> Statement:
        try:
            return self.all[name]
        except KeyError:
            raise AttributeError(f"no folder below sql/ has {name}.sql") from None


def base_name(name: str) -> str:
    """The name of a statement, without its month and its number of rows."""
    return name.rstrip("!").partition("@")[0]


def is_of_a_month(name: str) -> bool:
    return "@" in name


@cache
def load() -> _Statements:
    return _Statements()


SQL: Final = load()
