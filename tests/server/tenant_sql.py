"""What the role of tenants reads when it is asked directly, table by table as the catalogue has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

ROLE = "holdfast_tenant"
READABLE = """
select c.relname, array_agg(a.attname::text order by a.attnum)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
  and has_column_privilege(%s, c.oid, a.attnum, 'select')
group by 1 order by 1
"""

POLICIES = """
select c.relname, p.polname, pg_get_expr(p.polqual, p.polrelid)
from pg_policy p join pg_class c on c.oid = p.polrelid
where c.relnamespace = 'holdfast'::regnamespace and p.polroles = array[%s::regrole::oid]
"""
_CHANGE = sql.SQL("alter policy {} on holdfast.{} using ({})")


def seen_by_tenant(dsn: str, setting: str | None) -> dict[str, str]:
    """Everything the role can read for an organisation; None: for none."""
    with psycopg.connect(dsn) as db:
        tables = db.execute(READABLE, (ROLE,)).fetchall()
        db.execute(sql.SQL("set local role {}").format(sql.Identifier(ROLE)))
        if setting is not None:
            db.execute("select set_config('holdfast.org', %s, true)", (setting,))
        return {table: _text(db, table, columns) for table, columns in tables}


def _text(db: psycopg.Connection[tuple[object, ...]], table: str, columns: list[str]) -> str:
    query = sql.SQL("select row({})::text from holdfast.{}").format(
        sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(table)
    )
    return "\n".join(map(str, db.execute(query)))


@contextmanager
def policies_closed(dsn: str) -> Iterator[None]:
    """Nobody who reads in the role of tenants finds a row."""
    with psycopg.connect(dsn, autocommit=True) as db:
        policies = db.execute(POLICIES, (ROLE,)).fetchall()
        assert policies
        for table, policy, _ in policies:
            db.execute(_CHANGE.format(sql.Identifier(policy), sql.Identifier(table), sql.SQL("false")))
        try:
            yield
        finally:
            for table, policy, condition in policies:
                db.execute(_CHANGE.format(sql.Identifier(policy), sql.Identifier(table), sql.SQL(condition)))
