"""The runner: what it applies, what it refuses, and ten processes that start at once."""

from __future__ import annotations

import datetime
import multiprocessing
import uuid
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from schema_dump import REFERENCE, dump
from schema_rows import NOW, definition, insert, step

from holdfast.errors import StoreError
from holdfast.store.admin.schema import check_server, current, latest, migrate, migrations

pytest_plugins = ("schema_db",)

ALL = [file.number for file in migrations()]


@pytest.fixture
def plain_login(admin_dsn: str, empty_dsn: str) -> Iterator[str]:
    """A login without any privilege of its own."""
    name = f"plain_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(empty_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login password 'secret'").format(sql.Identifier(name)))
        yield name
        admin.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(name)))
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("drop owned by {}").format(sql.Identifier(name)))
        admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_files_are_numbered_without_gaps() -> None:
    assert list(range(1, latest() + 1)) == ALL


def test_applies_everything_once(empty_dsn: str) -> None:
    assert current(empty_dsn) == 0
    assert migrate(empty_dsn) == ALL
    assert migrate(empty_dsn) == []
    assert current(empty_dsn) == latest()


def test_an_interrupted_upgrade_goes_on_where_it_stopped(empty_dsn: str) -> None:
    first = migrations()[0]
    with psycopg.connect(empty_dsn) as connection:
        connection.execute(first.text)
        connection.execute(
            "insert into holdfast.schema_version (number, name, checksum) values (%s, %s, %s)",
            (first.number, first.name, first.checksum),
        )
    assert migrate(empty_dsn) == ALL[1:]


def test_ten_processes_at_once(empty_dsn: str) -> None:
    with ProcessPoolExecutor(10, mp_context=multiprocessing.get_context("spawn")) as pool:
        applied = list(pool.map(migrate, [empty_dsn] * 10))
    assert sorted(number for numbers in applied for number in numbers) == ALL
    assert current(empty_dsn) == latest()


def test_the_schema_is_the_one_of_the_reference(db: psycopg.Connection) -> None:
    assert dump(db) == REFERENCE.read_text(), "write it again: python tests/store/schema_dump.py <dsn>"


TABLES = """
    select '`' || relname || '`' from pg_class
    where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'p') and not relispartition
"""
VERBS = """
    select 'holdfast.' || proname || '(' from pg_proc
    where pronamespace = 'holdfast'::regnamespace and has_function_privilege('holdfast_tenant', oid, 'execute')
"""


@pytest.mark.parametrize("names", [TABLES, VERBS], ids=["tables", "verbs"])
def test_the_docs_name_every_table_and_every_verb(db: psycopg.Connection, names: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "schema.md").read_text()
    assert [name for (name,) in db.execute(names) if name not in page] == []


def test_a_changed_file_is_refused(private_dsn: str) -> None:
    with psycopg.connect(private_dsn) as connection:
        connection.execute("update holdfast.schema_version set checksum = 'other' where number = 2")
    for verb in (migrate, current):
        with pytest.raises(StoreError) as caught:
            verb(private_dsn)
        assert caught.value.code == "SCHEMA_CHANGED"


def test_a_newer_schema_is_refused(private_dsn: str) -> None:
    with psycopg.connect(private_dsn) as connection:
        connection.execute("insert into holdfast.schema_version (number, name, checksum) values (999, 'later', 'x')")
    with pytest.raises(StoreError) as caught:
        migrate(private_dsn)
    assert caught.value.code == "SCHEMA_TOO_NEW"
    assert "999" in caught.value.message


def test_an_old_server_is_refused() -> None:
    check_server(150000)
    with pytest.raises(StoreError) as caught:
        check_server(140012)
    assert caught.value.code == "POSTGRES_TOO_OLD"
    assert "PostgreSQL 14" in caught.value.message


@pytest.mark.parametrize(
    ("dsn", "code"),
    [
        ("postgresql://someone:hush-hush@127.0.0.1:1/nowhere", "STORE_UNREACHABLE"),
        ("host=127.0.0.1 port=1 password=hush-hush", "STORE_UNREACHABLE"),
        ("host=/nowhere password=hush-hush", "STORE_UNREACHABLE"),
        ("postgresql://someone:hush-hush@127.0.0.1:notaport/nowhere", "DSN_INVALID"),
        ("host=127.0.0.1 connect_timeout=soon password=hush-hush", "DSN_INVALID"),
        ("host=127.0.0.1 no_such_option=1 password=hush-hush", "DSN_INVALID"),
        ("nonsense hush-hush", "DSN_INVALID"),
    ],
)
def test_an_address_that_leads_nowhere_is_told_without_its_password(dsn: str, code: str) -> None:
    with pytest.raises(StoreError) as caught:
        migrate(dsn)
    assert caught.value.code == code
    assert caught.value.hint
    assert "hush-hush" not in f"{caught.value} {caught.value.detail}"
    assert caught.value.__suppress_context__


def test_an_unknown_database_is_unreachable(admin_dsn: str) -> None:
    with pytest.raises(StoreError) as caught:
        migrate(make_conninfo(admin_dsn, dbname="no_such_database"))
    assert caught.value.code == "STORE_UNREACHABLE"
    assert "no_such_database" in caught.value.message


def _as(dsn: str, login: str) -> str:
    return make_conninfo(dsn, options=f"-c role={login}")


def test_missing_privileges_are_named(empty_dsn: str, plain_login: str) -> None:
    with pytest.raises(StoreError) as caught:
        migrate(_as(empty_dsn, plain_login))
    assert caught.value.code == "PRIVILEGES_MISSING"
    assert f"TO {plain_login};" in caught.value.hint
    assert "GRANT CREATE ON DATABASE" in caught.value.hint
    assert current(empty_dsn) == 0


def test_the_named_remedies_are_enough(schema_dsn: str, empty_dsn: str, plain_login: str) -> None:
    with pytest.raises(StoreError) as caught:
        migrate(_as(empty_dsn, plain_login))
    with psycopg.connect(empty_dsn, autocommit=True) as admin:
        for remedy in caught.value.detail["remedies"]:
            admin.execute(remedy)
    assert migrate(_as(empty_dsn, plain_login)) == ALL
    _use_every_raised_right(empty_dsn)


def _use_every_raised_right(dsn: str) -> None:
    """The functions act as the owner, who is bound by forced policies when it is an ordinary login."""
    with psycopg.connect(dsn) as connection:
        insert(connection, "definitions", definition(org_id="default"))
        started = connection.execute("select holdfast.start('order', key => 'k')").fetchone()
        assert connection.execute("select holdfast.start('order', key => 'k')").fetchone() == started
        assert started
        connection.execute("select holdfast.signal(%s, 'paid')", started)
        connection.execute("select holdfast.signal_key('paid', 'k')")
        connection.execute("select holdfast.cancel(%s)", started)
        insert(connection, "steps", step(created_at=NOW + datetime.timedelta(days=130)))
        connection.execute("select holdfast.ensure_partitions(5)")
        assert ("steps", 0, 5) in connection.execute("select * from holdfast.partition_alarm()").fetchall()
        _read_by_grant(connection)


def _read_by_grant(connection: psycopg.Connection) -> None:
    """A policy that asks for the grants of a login, which stand behind a policy themselves."""
    connection.execute("create role reader in role holdfast_tenant")
    connection.execute("insert into holdfast.tenant_grants values ('reader', 'default')")
    insert(connection, "definitions", definition(org_id="globex"))
    connection.execute("set local session authorization reader")
    for org, seen in (("default", [("default",)]), ("globex", [])):
        connection.execute("select set_config('holdfast.org', %s, true)", (org,))
        assert connection.execute("select org_id from holdfast.definitions").fetchall() == seen
    connection.rollback()


def test_a_stranger_to_the_schema_is_told_what_to_ask_for(private_dsn: str, plain_login: str) -> None:
    with pytest.raises(StoreError) as caught:
        migrate(_as(private_dsn, plain_login))
    assert caught.value.code == "PRIVILEGES_MISSING"
    assert f"GRANT holdfast_worker TO {plain_login};" in caught.value.hint


def test_a_worker_login_may_look(private_dsn: str, plain_login: str) -> None:
    with psycopg.connect(private_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("grant holdfast_worker to {}").format(sql.Identifier(plain_login)))
    assert migrate(_as(private_dsn, plain_login)) == []


def test_months_are_prepared(db: psycopg.Connection) -> None:
    assert db.execute("select * from holdfast.partition_alarm()").fetchall() == [
        (table, 0, 3) for table in ("ack_consumers", "acks", "effects", "events", "notices", "steps")
    ]
    assert db.execute("select holdfast.ensure_partitions()").fetchall() == []


def test_rows_without_a_month_raise_the_alarm_and_move_when_it_comes(db: psycopg.Connection) -> None:
    (later,) = db.execute("select date_trunc('month', now()) + interval '4 months 3 days'").fetchone() or ()
    row = insert(db, "steps", step(created_at=later))
    assert ("steps", 1, 3) in db.execute("select * from holdfast.partition_alarm()").fetchall()

    made = [name for (name,) in db.execute("select holdfast.ensure_partitions(4)")]

    assert len(made) == 6
    assert ("steps", 0, 4) in db.execute("select * from holdfast.partition_alarm()").fetchall()
    home = db.execute("select tableoid::regclass::text from holdfast.steps where id = %s", (row["id"],)).fetchone()
    assert home == (f"holdfast.{made[5]}",)


def test_partitions_made_by_several_sessions_at_once(private_dsn: str) -> None:
    def ensure(_: int) -> list[str]:
        with psycopg.connect(private_dsn) as connection:
            return [name for (name,) in connection.execute("select holdfast.ensure_partitions(6)")]

    with ThreadPoolExecutor(6) as pool:
        made = [name for names in pool.map(ensure, range(6)) for name in names]
    assert len(made) == len(set(made)) == 18
