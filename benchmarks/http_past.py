"""A long past of workflows in minutes: copies of real ones, finished and open, with the tasks that people have of them.

As `benchmarks.history` does it, and with its parts. An open workflow names its task in its own state, so a copy is
given the name of the copied task: a page of a list looks at as many different tasks as it would in earnest. What
instances are found by is written by the database itself.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import sql

from benchmarks.history import CHUNK, COLUMNS, MAP_CHUNK, SPREAD, count

TABLES = ("instances", "steps", "step_receipts", "events", "tasks", "task_roles", "task_events")
TAKE_SAMPLE = """
    create temp table sampled as
    select row_number() over (order by i.id) - 1 as number, i.id, i.created_at, t.id as task
    from holdfast.instances i join holdfast.tasks t on t.instance_id = i.id
    where i.status = any(array['running', 'completed'])
"""
KEEP_SAMPLE = """
    create temp table {kept} as
    select s.id as source, s.task as old_task, t.* from holdfast.{table} t join sampled s on {belongs}
"""
COPY = """
    insert into holdfast.{table} ({columns})
    select {values} from mapped m join {kept} t on t.source = m.source
    cross join lateral (select md5(m.id::text || t.old_task::text)::uuid as task) n
    order by m.number
"""
STATE = """
    replace(replace(t.state::text, t.old_task::text, n.task::text),
        replace(t.old_task::text, '-', ''), replace(n.task::text, '-', ''))::jsonb
"""


def fill(dsn: str, instances: int, say: Callable[[str], None]) -> None:
    """Bring the database to that many workflows, of which as many are open as there were among the first ones."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")  # only for the filling: nothing here is measured
        connection.execute(TAKE_SAMPLE)
        present = count(connection)
        copies = [copy_statement(connection, table) for table in TABLES]
        for table in TABLES:
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
                say(f"{last + 1:,} workflows")
        connection.execute("vacuum (analyze)")
        connection.execute("checkpoint")


def keep_sample(connection: psycopg.Connection, table: str) -> None:
    """The sample's rows apart, so that copying never reads the table it fills."""
    owner = {"instances": "t.id = s.id", "task_roles": "t.task_id = s.task"}.get(table, "t.instance_id = s.id")
    kept = sql.Identifier(f"sample_{table}")
    connection.execute(
        sql.SQL(KEEP_SAMPLE).format(kept=kept, table=sql.Identifier(table), belongs=sql.SQL(owner))
    )  # fmt: skip
    connection.execute(sql.SQL("create index on {} (source)").format(kept))
    connection.execute(sql.SQL("analyze {}").format(kept))


def copy_statement(connection: psycopg.Connection, table: str) -> sql.Composed:
    columns = connection.execute(COLUMNS, (table,)).fetchall()
    return sql.SQL(COPY).format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(sql.Identifier(name) for name, _ in columns),
        values=sql.SQL(", ").join(copied(table, name, kind) for name, kind in columns),
        kept=sql.Identifier(f"sample_{table}"),
    )


def copied(table: str, column: str, kind: str) -> sql.Composable:
    """What a copy holds in this column: its own identity and moments, otherwise the sample's value."""
    match table, column:
        case _, "bucket":
            return sql.SQL("m.bucket")
        case ("instances", "id") | (_, "instance_id"):
            return sql.SQL("m.id")
        case ("tasks", "id") | (_, "task_id"):
            return sql.SQL("n.task")
        case ("instances", "state"):
            return sql.SQL(STATE)
        case (_, "id" | "step_id"):
            return sql.SQL("md5(m.id::text || t.{}::text)::uuid").format(sql.Identifier(column))
        case _ if kind == "timestamptz":
            return sql.SQL("t.{} + m.shift").format(sql.Identifier(column))
        case _:
            return sql.SQL("t.{}").format(sql.Identifier(column))
