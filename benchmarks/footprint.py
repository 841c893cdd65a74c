"""The footprint of a flow: which rows each of its commits adds, changes and removes, seen from outside the engine.

One flow runs alone in an empty database. Before the worker starts, inside every handler and after the end, all tables a
flow touches are read; the differences between neighbouring pictures are what the commits between them wrote.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.ours import linear
from holdfast import Engine

# In the lock order of the store.
TABLES = ("instances", "work", "signals", "step_receipts", "steps", "events")
KEYS = """
    select a.attname from pg_index i cross join lateral unnest(i.indkey) with ordinality as k(number, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
    where i.indrelid = ('holdfast.' || %s)::regclass and i.indisprimary order by k.place
"""
COLUMNS = """
    select attname, format_type(atttypid, null) from pg_attribute
    where attrelid = ('holdfast.' || %s)::regclass and attnum > 0 and not attisdropped order by attnum
"""

Values = dict[str, Any]
Picture = dict[str, dict[tuple[Any, ...], Values]]


@dataclass(frozen=True)
class Table:
    name: str
    types: dict[str, str]
    key: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """One set-based write of a commit: rows of one table that are added, changed in the same columns, or removed."""

    table: Table
    verb: str
    columns: tuple[str, ...]
    rows: tuple[Values, ...]


Commit = tuple[Change, ...]


def take(dsn: str, steps: int) -> list[Commit]:
    return asyncio.run(_take(dsn, steps))


async def _take(dsn: str, steps: int) -> list[Commit]:
    pictures: list[Picture] = []
    async with Engine(dsn) as engine:
        with psycopg.connect(dsn, autocommit=True) as connection:
            tables = [describe(connection, name) for name in TABLES]

            async def look(ctx: Any, data: Any) -> Any:
                pictures.append(picture(connection, tables))
                return data

            engine.register("noop", look)
            await engine.publish(linear("flow5", steps, "noop"))
            pictures.append(picture(connection, tables))
            started = await engine.start("flow5", {"n": 1})
            pictures.append(picture(connection, tables))
            async with engine.worker():
                await engine.wait(started.id)
            pictures.append(picture(connection, tables))
    return [differences(tables, before, after) for before, after in pairwise(pictures)]


def describe(connection: psycopg.Connection, name: str) -> Table:
    types = dict(connection.execute(COLUMNS, (name,)).fetchall())
    return Table(name, types, tuple(row[0] for row in connection.execute(KEYS, (name,)).fetchall()))


def picture(connection: psycopg.Connection, tables: list[Table]) -> Picture:
    return {table.name: read(connection, table) for table in tables}


def read(connection: psycopg.Connection, table: Table) -> dict[tuple[Any, ...], Values]:
    names = list(table.types)
    # Documents are compared and written as text: nobody needs them decoded here.
    shown = [
        sql.SQL("{}::text" if table.types[name] == "jsonb" else "{}").format(sql.Identifier(name)) for name in names
    ]
    query = sql.SQL("select {} from holdfast.{}").format(sql.SQL(", ").join(shown), sql.Identifier(table.name))
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query).fetchall()]
    return {tuple(row[name] for name in table.key): row for row in rows}


def differences(tables: list[Table], before: Picture, after: Picture) -> Commit:
    changes: list[Change] = []
    for table in tables:
        old, new = before[table.name], after[table.name]
        changes += removed(table, [old[key] for key in old.keys() - new.keys()])
        changes += changed(table, [(old[key], new[key]) for key in old.keys() & new.keys()])
        changes += added(table, [new[key] for key in new.keys() - old.keys()])
    return tuple(changes)


def removed(table: Table, rows: list[Values]) -> list[Change]:
    return [Change(table, "delete", (), tuple(rows))] if rows else []


def changed(table: Table, pairs: list[tuple[Values, Values]]) -> list[Change]:
    """Rows that differ go into one statement over all columns any of them changed."""
    different = [(old, new) for old, new in pairs if old != new]
    if not different:
        return []
    columns = tuple(name for name in table.types if any(old[name] != new[name] for old, new in different))
    return [Change(table, "update", columns, tuple(new for _, new in different))]


def added(table: Table, rows: list[Values]) -> list[Change]:
    """Columns that are null in every row are left to their default, as cheap as it gets."""
    columns = tuple(name for name in table.types if any(row[name] is not None for row in rows))
    return [Change(table, "insert", columns, tuple(rows))] if rows else []
