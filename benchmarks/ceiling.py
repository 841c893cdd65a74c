"""The raw ceiling: the very rows of a five-step flow, written in batches by a script that does nothing else.

    python -m benchmarks.ceiling '{"dsn": …, "flows": …, "batch": …, "steps": …, "encoded": …}'

Claims, leases, decisions and handlers are missing; so is the making of the rows, which happens before the clock starts.
With `encoded` the driver's encoding of the arrays happens before it too, and hardly anything but the server is timed.
What remains is what PostgreSQL and the driver need for these rows: one connection, one set-based statement per table
and commit, a pipelined transaction, row locks first.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import pq, sql
from psycopg.adapt import Dumper, PyFormat, Transformer

from benchmarks import footprint
from benchmarks.footprint import Change, Commit, Table, Values

PINNED = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan")
LOCK = """
    select t.id from unnest(%b::uuid[], %b::smallint[]) as u(id, bucket)
    join holdfast.instances t on t.id = any(array[u.id]) and t.bucket = u.bucket
    order by u.id for no key update of t skip locked
"""

Call = tuple[bytes, list[Any]]


@dataclass
class Flow:
    """One copy of the sampled flow: its own ids, and the moments its rows were written at."""

    id: UUID
    ids: dict[UUID, UUID]
    moments: dict[datetime, datetime]

    def value(self, kind: str, value: Any, now: datetime) -> Any:
        if isinstance(value, UUID):
            if value not in self.ids:
                self.ids[value] = random_id()
            return self.ids[value]
        if isinstance(value, datetime):
            return self.moments.setdefault(value, now)
        if kind == "bytea":
            return hashlib.sha256(self.id.bytes + value).digest()
        return value


@dataclass(frozen=True)
class Encoded:
    """An array in the form it has on the wire."""

    data: bytes
    oid: int


class EncodedDumper(Dumper):
    format = pq.Format.BINARY

    def get_key(self, obj: Encoded, format: PyFormat) -> Any:
        return (Encoded, obj.oid)

    def upgrade(self, obj: Encoded, format: PyFormat) -> EncodedDumper:
        dumper = EncodedDumper(Encoded)
        dumper.oid = obj.oid
        return dumper

    def dump(self, obj: Encoded) -> bytes:
        return obj.data


def encode(connection: psycopg.Connection, calls: list[Call]) -> list[Call]:
    return [(statement, [encode_array(connection, column) for column in columns]) for statement, columns in calls]


def encode_array(connection: psycopg.Connection, column: Any) -> Encoded:
    transformer = Transformer(connection)
    data = transformer.dump_sequence([column], [PyFormat.BINARY])[0]
    assert data is not None
    assert transformer.types is not None
    return Encoded(bytes(data), transformer.types[0])


def random_id() -> UUID:
    millis = time.time_ns() // 1_000_000
    return UUID(bytes=millis.to_bytes(6, "big") + b"\x70" + random.randbytes(1) + b"\x80" + random.randbytes(7))


def main() -> None:
    task = json.loads(sys.argv[1])
    commits = footprint.take(task["dsn"], task["steps"])
    batches = [list(batch_calls(commits, task["batch"])) for _ in range(task["flows"] // task["batch"])]
    with psycopg.connect(task["dsn"], autocommit=True) as connection:
        if task["encoded"]:
            connection.adapters.register_dumper(Encoded, EncodedDumper)
            batches = [[encode(connection, calls) for calls in batch] for batch in batches]
        for setting in PINNED:
            connection.execute(sql.SQL("set {} = off").format(sql.Identifier(setting)))
        connection.execute("set plan_cache_mode = force_generic_plan")
        connection.prepare_threshold = 0
        write(connection, batches[0])
        begin, cpu = time.perf_counter(), time.process_time()
        for batch in batches[1:]:
            write(connection, batch)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    steps = (len(batches) - 1) * task["batch"] * task["steps"]
    answer = {"rate": steps / seconds, "client_us": cpu / steps * 1e6, "commits": len(commits)}
    print(json.dumps(answer), flush=True)


def write(connection: psycopg.Connection, commits: list[list[Call]]) -> None:
    cursor = connection.cursor()
    for calls in commits:
        with connection.pipeline(), connection.transaction():
            for statement, columns in calls:
                cursor.execute(statement, columns)


def batch_calls(commits: list[Commit], size: int) -> Iterator[list[Call]]:
    """The statements of every commit of `size` flows that move in step."""
    flows = new_flows(commits, size)
    now = datetime.now(UTC)
    for number, commit in enumerate(commits):
        now += timedelta(milliseconds=1)
        lock: list[Call] = [(LOCK.encode(), [[f.id for f in flows], [f.id.bytes[15] for f in flows]])] if number else []
        yield [*lock, *(change_call(change, flows, now) for change in commit)]


def new_flows(commits: list[Commit], size: int) -> list[Flow]:
    first = next(change for change in commits[0] if change.table.name == "instances")
    sampled, definition = first.rows[0]["id"], first.rows[0]["definition_id"]
    ids = [random_id() for _ in range(size)]
    return [Flow(new, {sampled: new, definition: definition}, {}) for new in sorted(ids)]


def change_call(change: Change, flows: list[Flow], now: datetime) -> Call:
    table = change.table
    names = change.columns if change.verb == "insert" else (*table.key, *change.columns)
    columns = [[own(flow, table, name, row, now) for flow in flows for row in change.rows] for name in names]
    # Composed text would be put together again at every execution.
    return STATEMENTS[change.verb](table, names).as_bytes(), columns


def own(flow: Flow, table: Table, name: str, row: Values, now: datetime) -> Any:
    return flow.id.bytes[15] if name == "bucket" else flow.value(table.types[name], row[name], now)


def unnested(table: Table, names: tuple[str, ...]) -> sql.Composed:
    """Documents travel as text arrays: the driver has no binary form for an array of them."""
    arrays = [sql.SQL(f"%b::{'text' if table.types[name] == 'jsonb' else table.types[name]}[]") for name in names]
    return sql.SQL("unnest({}) as u({})").format(sql.SQL(", ").join(arrays), listed(names))


def listed(names: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(name) for name in names)


def cast(table: Table, name: str) -> sql.Composed:
    return sql.SQL("u.{}::jsonb" if table.types[name] == "jsonb" else "u.{}").format(sql.Identifier(name))


def matching(table: Table) -> sql.Composed:
    """The leading key as `any(array[…])` leaves the probe of the primary key as the only plan."""
    first, *others = table.key
    parts = [sql.SQL("t.{0} = any(array[u.{0}])").format(sql.Identifier(first))]
    parts += [sql.SQL("t.{0} = u.{0}").format(sql.Identifier(name)) for name in others]
    return sql.SQL(" and ").join(parts)


def insert(table: Table, names: tuple[str, ...]) -> sql.Composed:
    return sql.SQL("insert into holdfast.{} ({}) select {} from {}").format(
        sql.Identifier(table.name),
        listed(names),
        sql.SQL(", ").join(cast(table, name) for name in names),
        unnested(table, names),
    )


def update(table: Table, names: tuple[str, ...]) -> sql.Composed:
    changed = [name for name in names if name not in table.key]
    return sql.SQL("update holdfast.{} t set {} from {} where {}").format(
        sql.Identifier(table.name),
        sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), cast(table, name)) for name in changed),
        unnested(table, names),
        matching(table),
    )


def delete(table: Table, names: tuple[str, ...]) -> sql.Composed:
    return sql.SQL("delete from holdfast.{} t using {} where {}").format(
        sql.Identifier(table.name), unnested(table, names), matching(table)
    )


STATEMENTS = {"insert": insert, "update": update, "delete": delete}


if __name__ == "__main__":
    main()
