"""A trigger and an ACK touch no more of the database for a machine that has been moved often than for a new one."""

from __future__ import annotations

import asyncio
import os

import psycopg
import pytest
from orders import BLUEPRINT, deliveries, register

from holdfast import Engine, Machine
from running import until

pytestmark = pytest.mark.anyio

MOVES = {"short": 2_000, "long": 100_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
CALLERS = 64
TIMES = 20
LEVELS = 25  # pages more of each trigger: a level more of every index, and pages that are not full

_TABLES = "select relname from pg_class where relkind = 'r' and relnamespace = 'holdfast'::regnamespace"
_OTHERS = (
    "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    " and pid <> pg_backend_pid()"
)
_TOUCHED = """
    select sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0))::bigint
    from pg_statio_user_tables where schemaname = 'holdfast'
"""
# All but the last fact of a machine is processed.
_CLOSE = """
    update holdfast.ack_consumers d set status = 'processed', next_due = null, closed_at = holdfast.clock()
    where d.closed_at is null and exists (
        select from holdfast.ack_consumers o where o.instance_id = d.instance_id and o.seq > d.seq
    )
"""
_DUE = "update holdfast.ack_consumers set next_due = holdfast.clock() where closed_at is null and next_due is null"


@pytest.mark.parametrize("past", ["processed", "open"])
@pytest.mark.parametrize("state", ["never analysed", "analysed when empty", "analysed"])
async def test_a_trigger_touches_as_much_after_many_transitions(holdfast_dsn: str, past: str, state: str) -> None:
    with psycopg.connect(holdfast_dsn, autocommit=True) as db:
        for (table,) in db.execute(_TABLES).fetchall():
            db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")
    await _live(holdfast_dsn, state)
    with psycopg.connect(holdfast_dsn, autocommit=True) as db:
        if past == "processed":
            db.execute(_CLOSE)
            db.execute(_DUE)
            db.execute("vacuum holdfast.ack_consumers")  # as autovacuum does, on which the test must not depend
        if state == "analysed":
            db.execute("analyze")
    touched = {ref: await _touched(holdfast_dsn, ref) for ref in ("new", "old")}
    assert touched["old"] <= touched["new"] + TIMES * LEVELS, touched


async def _live(dsn: str, state: str) -> None:
    """Move one machine once, and another one often."""
    async with Engine(dsn) as engine:
        await engine.import_machine(Machine.load(BLUEPRINT))
        register(dsn, "ledger")
        if state == "analysed when empty":
            with psycopg.connect(dsn, autocommit=True) as db:
                db.execute("vacuum analyze")
        for ref in ("old", "new"):
            assert (await engine.trigger("prod", "order", ref, "Check")).applied
        await asyncio.gather(*(_remind(engine, "old", MOVES // CALLERS) for _ in range(CALLERS)))


async def _remind(engine: Engine, ref: str, times: int) -> None:
    for _ in range(times):
        assert (await engine.trigger("prod", "order", ref, "Remind")).applied


async def _touched(dsn: str, ref: str) -> int:
    """Count the pages of triggers, and of an ACK, of sessions that have ended: only then all is counted."""
    [head] = [delivery.ack for delivery in deliveries(dsn, ref=ref) if delivery.is_due]
    before = await _pages(dsn)
    async with Engine(dsn) as engine:
        await _remind(engine, ref, TIMES)
        await engine.ack("prod", "ledger", head, "processed")
    return await _pages(dsn) - before


async def _pages(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as db:
        await until(lambda: db.execute(_OTHERS).fetchone() == (0,))
        row = db.execute(_TOUCHED).fetchone()
    assert row is not None
    return int(row[0])
