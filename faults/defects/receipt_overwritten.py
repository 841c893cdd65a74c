"""Defect 5: a second receipt for the same visit replaces the first; the database's own guard is gone too."""

from __future__ import annotations

import psycopg

from faults.defects.patching import rewrite

UPSERT = """
on conflict (instance_id, token, kind, run, bucket) do update set key = excluded.key, step_id = excluded.step_id
"""
TRIGGERS = """
select tgname from pg_trigger where tgrelid = 'holdfast.step_receipts'::regclass and not tgisinternal
"""


def apply() -> None:
    rewrite("insert_receipts", lambda text: text.rstrip() + UPSERT)


def prepare(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for (name,) in connection.execute(TRIGGERS).fetchall():
            connection.execute(f"drop trigger {name} on holdfast.step_receipts")
        connection.execute("grant update on holdfast.step_receipts to holdfast_worker")
