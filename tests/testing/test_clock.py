"""The movable clock: it moves due times, leaves leases alone, and cannot exist by accident."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.errors import HoldfastError, Refused
from holdfast.store.admin.schema import FILES, migrate
from holdfast.testing import Database, advance, install, shift

pytestmark = pytest.mark.anyio

INSTANCE = """
    insert into holdfast.instances (
        id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data, input,
        created_at, updated_at
    ) values (
        holdfast.new_id(7), 7, 'acme', gen_random_uuid(), 'order', 1, 'pending', 0, '{}', '{}', '{}', now(), now()
    )
"""


class Sleeper:
    """An engine as the clock sees it: an address, and somebody to wake."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.woken_at: datetime | None = None

    def wake(self) -> None:
        self.woken_at = clock(self.dsn)


def clock(dsn: str, role: str | None = None) -> datetime:
    return _one(dsn, "select holdfast.clock()", role)


def _one(dsn: str, query: str, role: str | None = None) -> datetime:
    with psycopg.connect(dsn) as connection:
        if role is not None:
            connection.execute(sql.SQL("set local role {}").format(sql.Identifier(role)))
        row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture
def production_dsn(holdfast_server: str, holdfast_database: Database) -> Iterator[str]:
    """A database as any installation makes it: migrated, nothing else."""
    name = f"{holdfast_database.name}_production"
    with psycopg.connect(holdfast_server, autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        try:
            dsn = make_conninfo(holdfast_server, dbname=name)
            migrate(dsn)
            yield dsn
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


async def test_it_starts_at_the_real_time(holdfast_dsn: str) -> None:
    assert abs(clock(holdfast_dsn) - _one(holdfast_dsn, "select clock_timestamp()")) < timedelta(seconds=10)


async def test_it_moves_by_what_was_asked_and_adds_up(holdfast_dsn: str) -> None:
    before = clock(holdfast_dsn)
    first = await advance(holdfast_dsn, days=3, hours=2)
    second = await advance(holdfast_dsn, minutes=5, seconds=1.5)
    assert timedelta(days=3, hours=2) <= first - before < timedelta(days=3, hours=2, seconds=30)
    assert timedelta(minutes=5, seconds=1.5) <= second - first < timedelta(minutes=5, seconds=31.5)
    assert clock(holdfast_dsn) >= second


async def test_the_real_clock_of_the_leases_stays(holdfast_dsn: str) -> None:
    before = _one(holdfast_dsn, "select clock_timestamp()")
    await advance(holdfast_dsn, days=3)
    assert _one(holdfast_dsn, "select clock_timestamp()") - before < timedelta(minutes=1)


async def test_the_engines_own_role_sees_it(holdfast_dsn: str) -> None:
    now = await advance(holdfast_dsn, days=400)
    assert clock(holdfast_dsn, "holdfast_worker") >= now


async def test_the_engine_is_woken_after_the_move(holdfast_dsn: str) -> None:
    engine = Sleeper(holdfast_dsn)
    now = await advance(engine, hours=1)
    assert engine.woken_at is not None
    assert engine.woken_at >= now


async def test_it_never_moves_back(holdfast_dsn: str) -> None:
    before = clock(holdfast_dsn)
    with pytest.raises(Refused) as refusal:
        await advance(holdfast_dsn, days=1, hours=-25)
    assert refusal.value.code == "CLOCK_BACKWARDS"
    assert clock(holdfast_dsn) - before < timedelta(minutes=1)


async def test_a_plain_function_can_move_it_too(holdfast_dsn: str) -> None:
    before = clock(holdfast_dsn)
    assert shift(holdfast_dsn, timedelta(hours=1)) - before >= timedelta(hours=1)


async def test_an_ordinary_installation_has_no_shift_and_cannot_be_moved(production_dsn: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        await advance(production_dsn, days=1)
    assert refusal.value.code == "TEST_CLOCK_MISSING"
    with psycopg.connect(production_dsn) as connection:
        schemas = connection.execute("select from pg_namespace where nspname = 'holdfast_testing'").fetchall()
        source = connection.execute("select prosrc from pg_proc where oid = 'holdfast.clock'::regproc").fetchone()
    assert schemas == []
    assert source is not None
    assert "shift" not in source[0]


async def test_no_migration_knows_the_shift() -> None:
    assert all(b"holdfast_testing" not in file.read_bytes() for file in FILES.iterdir() if file.name.endswith(".sql"))


async def test_a_database_with_instances_is_not_made_movable(production_dsn: str) -> None:
    with psycopg.connect(production_dsn) as connection:
        connection.execute(INSTANCE.encode())
    with pytest.raises(Refused) as refusal:
        install(production_dsn)
    assert refusal.value.code == "TEST_CLOCK_REFUSED"


async def test_install_may_be_called_again(production_dsn: str) -> None:
    install(production_dsn)
    moved = await advance(production_dsn, days=1)
    install(production_dsn)
    assert clock(production_dsn) >= moved
