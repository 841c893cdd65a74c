"""Plans of the store's statements: prepared as the session does it, explained under the settings they run with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from holdfast.store.pg.statements import SQL

Db = psycopg.Connection[Any]
Plan = dict[str, Any]

_PARAMETER = re.compile(rb"\$(\d+)::([a-z0-9]+(?:\[\])?)")
_PARTITION = re.compile(r"^(steps|events|effects|acks|ack_consumers|notices)_(?:\d{6}|default)")


class Access(NamedTuple):
    """One scan of a table in a plan. `index` None: the table itself was read."""

    table: str
    index: str | None
    condition: str
    inside: bool  # probed anew for each row of a nested loop

    def __str__(self) -> str:
        where = f" where {self.condition}" if self.condition else ""
        return f"{self.table} by {self.index}{where}{' per row' if self.inside else ''}"


def parameter_types(text: bytes) -> list[str]:
    types = {int(number): kind.decode() for number, kind in _PARAMETER.findall(text)}
    return [types[number] for number in sorted(types)]


def pin(db: Db) -> None:
    """The role and the settings of a commit."""
    db.execute(SQL.pin_transaction.sql)


def be_tenant(db: Db, org: str) -> None:
    """The role and the settings of a read."""
    db.execute(SQL.use_tenant.sql.replace(b"$1", b"%s"), [org])


def text_of(name: str) -> bytes:
    """Of a statement, of what it is in a month (`close_steps@202611`), or for one row (`advance_steps!`)."""
    base, _, month = name.rstrip("!").partition("@")
    statement = SQL.all[base].in_month(month) if month else SQL.all[base]
    return (statement.lone if name.endswith("!") else statement).sql


def prepare(db: Db, name: str) -> int:
    """Prepare the statement under its own name; how many parameters it has."""
    text = text_of(name)
    types = parameter_types(text)
    declared = f"({', '.join(types)})" if types else ""
    db.execute(f'prepare "{name}"{declared} as '.encode() + text)
    return len(types)


def explain(db: Db, name: str) -> Plan:
    """The generic plan: the same whatever the parameters are."""
    prepare(db, name)
    # A null moment would let PostgreSQL drop every partition before it even starts.
    values = [sql.SQL("now()") if kind == "timestamptz" else sql.NULL for kind in parameter_types(text_of(name))]
    return _explained(db, "format json", _execution(name, values))


def measure(db: Db, name: str, values: Sequence[Any]) -> Plan:
    """Run it for real and answer the plan with what it touched."""
    types = parameter_types(text_of(name))
    prepare(db, name)
    given = [sql.SQL("{}::" + kind).format(value) for kind, value in zip(types, values, strict=True)]
    return _explained(db, "analyze, buffers, timing off, format json", _execution(name, given))


def _execution(name: str, values: Sequence[sql.Composable]) -> sql.Composable:
    arguments = sql.SQL("({})").format(sql.SQL(", ").join(values)) if values else sql.SQL("")
    return sql.SQL("execute {}{}").format(sql.Identifier(name), arguments)


def _explained(db: Db, options: str, execution: sql.Composable) -> Plan:
    row = db.execute(sql.SQL("explain ({}) {}").format(sql.SQL(options), execution)).fetchone()
    assert row is not None
    found = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return found[0]["Plan"]


def nodes(plan: Plan, inside: bool = False) -> Iterator[tuple[Plan, bool]]:
    """Every node, and whether it runs once per row of something else."""
    yield plan, inside
    for child in plan.get("Plans", []):
        loops = plan["Node Type"] == "Nested Loop" and child.get("Parent Relationship") == "Inner"
        yield from nodes(child, inside or loops)


def node_types(plan: Plan) -> set[str]:
    return {node["Node Type"] for node, _ in nodes(plan)}


def accesses(plan: Plan) -> set[Access]:
    """How the plan reads each table; partitions count as their table."""
    found = set[Access]()
    for node, inside in nodes(plan):
        if "Relation Name" in node and "Scan" in node["Node Type"]:
            index = node.get("Index Name")
            found.add(
                Access(
                    _PARTITION.sub(r"\1", node["Relation Name"]),
                    None if index is None else _PARTITION.sub(r"\1", index),
                    re.sub(r"\b(steps|events|effects)_\d+\.|\b[a-z]+_\d+\.", "", node.get("Index Cond", "")),
                    inside,
                )
            )
    return found


def sorts_before_locking(plan: Plan) -> bool:
    """Whether rows are sorted below the place where they are locked: a claim that does so reads the whole queue."""
    locking = [node for node, _ in nodes(plan) if node["Node Type"] == "LockRows"]
    return any("Sort" in kind for node in locking for kind in node_types(node))


def buffers(plan: Plan) -> int:
    """Pages touched, wherever they came from."""
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
