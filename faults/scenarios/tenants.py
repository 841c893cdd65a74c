"""S18: two tenants ask one server for everything of each other, over 32 connections.

Every operation of the API is called with ids, cursors, keys and credentials of the other tenant and, as its twin, with
ones that nobody has. Requests are cancelled inside the server and torn off outside, own requests are refused and rolled
back, and connections of the database end all the while. The tests in tests/server run the same with fewer requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg

from faults import cluster
from faults.profile import Profile
from faults.report import NONE, Bar, Figure

CONNECTIONS = 32
BETWEEN_ENDS = 0.7  # seconds
END_ONE = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
order by pid offset %s limit 1
"""
OPEN_TABLES = """
select count(*), count(*) filter (where not (c.relrowsecurity and c.relforcerowsecurity
    and exists (select from pg_policy p where p.polrelid = c.oid and p.polroles = array['holdfast_tenant'::regrole::oid]
        and pg_get_expr(p.polqual, c.oid) like '%%visible_org()%%')))
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'org_id'
where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
"""
SETTINGS = (None, "", "nobody")


def run(profile: Profile, seed: int) -> list[Figure]:
    wanted = profile.size(full=50_000, short=500)
    with cluster.database() as (_, dsn):
        found, read = asyncio.run(_fuzz(dsn, wanted, seed, ends=not profile.is_short))
        [(tables, open_tables)] = cluster.ask(dsn, OPEN_TABLES)
    for line in found.wrong[:10]:
        print(f"    {line[:600]}", flush=True)
    seen = f"{found.requests:,} requests for {len(found.operations)} operations over {CONNECTIONS} connections"
    rough = f"{found.cancelled:,} cancelled, {found.away:,} without a database"
    valid = found.requests >= wanted and found.own_canaries > found.requests / 50
    return [
        Figure("S18: requests", found.requests, Bar("≥", wanted), seed, f"{len(found.operations)} operations; {rough}"),
        Figure("S18: leaks between tenants", len(found.leaks), NONE, seed, f"{seen}; {rough}", valid),
        Figure(
            "S18: answers that tell foreign from absent", len(found.differences), NONE, seed,
            f"{found.compared:,} pairs", found.compared > wanted / 5,
        ),
        Figure("S18: rows of the other tenant changed", len(found.changed), NONE, seed, seen),
        Figure("S18: requests that failed", len(found.failures), NONE, seed, seen),
        Figure("S18: tables read by the tenant role without a tenant", read, NONE, seed, f"settings {SETTINGS}"),
        Figure("S18: tables of tenants without forced row security", open_tables, NONE, seed, f"{tables} tables"),
    ]  # fmt: skip


async def _fuzz(dsn: str, wanted: int, seed: int, *, ends: bool) -> tuple[Any, int]:
    fuzz, world_of, sql = (_of_tests(name) for name in ("tenant_fuzz", "tenant_world", "tenant_sql"))
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a cancelled request has no answer: it says so
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    logging.getLogger("holdfast.server").setLevel(logging.ERROR)
    async with world_of.two_companies(dsn) as world:
        visitors = fuzz.Fuzz(world, seed, is_rough=ends)
        await fuzz.collect_cursors(world)
        ending = asyncio.create_task(_end_connections(dsn, random.Random(seed)) if ends else asyncio.sleep(0))
        try:
            found = await visitors.run(wanted, CONNECTIONS)
        finally:
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ending
    seen = [text for setting in SETTINGS for text in sql.seen_by_tenant(dsn, setting).values()]
    return found, sum(1 for text in seen if text)


async def _end_connections(dsn: str, luck: random.Random) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as admin:
        while True:
            await asyncio.sleep(BETWEEN_ENDS)
            await admin.execute(END_ONE, (luck.randrange(8),))


def _of_tests(name: str) -> Any:
    """The fuzz lives with the tests of the server, which are no package."""
    tests = Path(__file__).resolve().parents[2] / "tests"
    for place in (tests, tests / "server"):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
    return import_module(name)
