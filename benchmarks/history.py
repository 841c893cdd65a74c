"""A long past in minutes: copies of real instances, written by set-based SQL.

The rows are those a real run left: a sample is taken from what the engine has just made, and every copy keeps all
columns but the ones that make it another instance — ids, keys, bucket, moments. Ids rise with time and end in the
bucket, as the engine's own do, so the indexes grow in the order they would have grown in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

SAMPLE = 200
CHUNK = 20_000


@dataclass(frozen=True)
class Population:
    """What is copied: the tables, the status of the instances, and columns that hold something else in a copy."""

    status: str
    tables: tuple[str, ...]
    changes: Mapping[tuple[str, str], sql.SQL] = field(default_factory=dict[tuple[str, str], sql.SQL])


FINISHED = Population("completed", ("instances", "steps", "step_receipts", "events"))

COLUMNS = """
    select a.attname, t.typname from pg_attribute a join pg_type t on t.oid = a.atttypid
    where a.attrelid = ('holdfast.' || %s)::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    order by a.attnum
"""
TAKE_SAMPLE = """
    create temp table sampled as
    select row_number() over (order by id) - 1 as number, id, created_at from holdfast.instances
    where status = %s order by id limit %s
"""
# One instance every millisecond up to now, closer together only where the month is younger than that: rows of a month
# without a partition would land in the default one.
SPREAD = """
    select least(interval '1 millisecond', (clock_timestamp() - date_trunc('month', clock_timestamp())) / %s::float8)
"""
MAP_CHUNK = """
    create temp table mapped on commit drop as
    select n.number, s.id as source, i.id, get_byte(uuid_send(i.id), 15)::smallint as bucket,
        m.moment - s.created_at as shift
    from generate_series(%(first)s::bigint, %(last)s::bigint) as n(number)
    join sampled s on s.number = n.number %% (select count(*) from sampled)
    cross join lateral (select %(from)s::timestamptz + n.number * %(every)s::interval as moment) m
    cross join lateral (select md5(n.number || m.moment::text) as salt) h
    cross join lateral (select (lpad(to_hex((extract(epoch from m.moment) * 1000)::bigint), 12, '0')
        || '7' || substr(h.salt, 1, 3) || '8' || substr(h.salt, 4, 15))::uuid as id) i
"""


def fill(dsn: str, instances: int, say: Callable[[str], None], population: Population = FINISHED) -> None:
    """Bring the database to at least `instances` instances; it must hold at least one of the population already."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")  # only for the filling: nothing here is measured
        connection.execute(TAKE_SAMPLE, (population.status, SAMPLE))
        present = count(connection)
        copies = [copy_statement(connection, table, population) for table in population.tables]
        for table in population.tables:
            keep_sample(connection, table)
        row = connection.execute(SPREAD, (max(instances - present, 1),)).fetchone()
        now = connection.execute("select clock_timestamp()").fetchone()
        assert row is not None
        assert now is not None
        begin = now[0] - row[0] * (instances - present)
        for first in range(present, instances, CHUNK):
            last = min(first + CHUNK, instances) - 1
            moment = {"first": first - present, "last": last - present, "from": begin, "every": row[0]}
            with connection.transaction():
                connection.execute(MAP_CHUNK, moment)
                for copy in copies:
                    connection.execute(copy)
            if (last + 1) % (CHUNK * 10) == 0:
                say(f"{last + 1:,} {population.status} instances")
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


def count(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from holdfast.instances").fetchone()
    assert row is not None
    return int(row[0])


def keep_sample(connection: psycopg.Connection, table: str) -> None:
    """The sample's rows apart, so that copying never reads the table it fills."""
    owner = "id" if table == "instances" else "instance_id"
    connection.execute(
        sql.SQL("create temp table {} as select t.* from holdfast.{} t where t.{} in (select id from sampled)").format(
            sql.Identifier(f"sample_{table}"), sql.Identifier(table), sql.Identifier(owner)
        )
    )
    connection.execute(
        sql.SQL("create index on {} ({})").format(sql.Identifier(f"sample_{table}"), sql.Identifier(owner))
    )
    connection.execute(sql.SQL("analyze {}").format(sql.Identifier(f"sample_{table}")))


def copy_statement(connection: psycopg.Connection, table: str, population: Population) -> sql.Composed:
    columns = connection.execute(COLUMNS, (table,)).fetchall()
    owner = "id" if table == "instances" else "instance_id"
    return sql.SQL(
        "insert into holdfast.{} ({}) select {} from mapped m join {} t on t.{} = m.source order by m.number"
    ).format(
        sql.Identifier(table),
        sql.SQL(", ").join(sql.Identifier(name) for name, _ in columns),
        sql.SQL(", ").join(
            population.changes.get((table, name)) or copied(table, name, kind) for name, kind in columns
        ),
        sql.Identifier(f"sample_{table}"),
        sql.Identifier(owner),
    )


def copied(table: str, column: str, kind: str) -> sql.Composable:
    """What a copy holds in this column: its own identity and moments, otherwise the sample's value."""
    if column == "bucket":
        return sql.SQL("m.bucket")
    if column == "instance_id" or (table, column) == ("instances", "id"):
        return sql.SQL("m.id")
    if column in ("id", "step_id", "ack_id"):
        return sql.SQL("md5(m.id::text || t.{}::text)::uuid").format(sql.Identifier(column))
    if column in ("idempotency_key", "business_key", "external_ref"):
        return sql.SQL("t.{} || '-' || m.number").format(sql.Identifier(column))
    if kind == "timestamptz":
        return sql.SQL("t.{} + m.shift").format(sql.Identifier(column))
    return sql.SQL("t.{}").format(sql.Identifier(column))
