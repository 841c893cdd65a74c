"""Start, signal, cancel and get in the caller's own transaction, on every kind of connection a caller may bring."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

import django
import django.conf
import msgspec
import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import holdfast
from holdfast.doors.saga import Flow
from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound, PayloadError, Refused, StoreError
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.store.caller_transaction import BorrowedVerbs
from holdfast.testing import copied_database

UNKNOWN = "00000000-0000-7000-8000-000000000000"


class Address(NamedTuple):
    """Of a database that may not be the engine's, with the loop its async connections live in."""

    dsn: str
    wait_for: Callable[[Any], Any]


class Caller(msgspec.Struct):
    """A connection in a transaction of its own, and how its owner ends it."""

    conn: Any
    commit: Callable[[], object]
    rollback: Callable[[], object]


def by_psycopg(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    conn = stack.enter_context(psycopg.connect(engine.dsn, row_factory=dict_row))
    return Caller(conn, conn.commit, conn.rollback)


def by_async_psycopg(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    conn = engine.wait_for(psycopg.AsyncConnection.connect(engine.dsn))
    stack.callback(lambda: engine.wait_for(conn.close()))
    return Caller(conn, lambda: engine.wait_for(conn.commit()), lambda: engine.wait_for(conn.rollback()))


def database_of(engine: SyncEngine | Address, stack: ExitStack) -> sqlalchemy.Engine:
    database = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(engine.dsn))
    stack.callback(database.dispose)
    return database


def by_sqlalchemy_connection(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    conn = stack.enter_context(database_of(engine, stack).connect())
    return Caller(conn, conn.commit, conn.rollback)


def by_sqlalchemy_session(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    session = stack.enter_context(sqlalchemy.orm.Session(database_of(engine, stack)))
    return Caller(session, session.commit, session.rollback)


def async_database_of(engine: SyncEngine | Address, stack: ExitStack) -> AsyncEngine:
    """What the extra `sqlalchemy` brings is enough for it."""
    database = create_async_engine(
        "postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(engine.dsn)
    )
    stack.callback(lambda: engine.wait_for(database.dispose()))
    return database


def by_async_sqlalchemy_connection(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    conn = async_database_of(engine, stack).connect()
    engine.wait_for(conn.__aenter__())
    stack.callback(lambda: engine.wait_for(conn.close()))
    return Caller(conn, lambda: engine.wait_for(conn.commit()), lambda: engine.wait_for(conn.rollback()))


def by_async_sqlalchemy_session(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    session = AsyncSession(async_database_of(engine, stack))
    stack.callback(lambda: engine.wait_for(session.close()))
    return Caller(session, lambda: engine.wait_for(session.commit()), lambda: engine.wait_for(session.rollback()))


def by_django(engine: SyncEngine | Address, stack: ExitStack) -> Caller:
    """The proxy every Django program holds; it means another connection in every thread."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
        django.setup()
    from django.db import connection, connections, transaction

    known = conninfo_to_dict(engine.dsn)
    names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
    connections["default"].close()
    del connections["default"]
    connections.databases["default"].update({ours: str(known.get(theirs, "")) for ours, theirs in names.items()})
    stack.callback(lambda: connections["default"].close())
    transaction.set_autocommit(False)
    return Caller(connection, transaction.commit, transaction.rollback)


CALLERS = [
    by_psycopg,
    by_async_psycopg,
    by_sqlalchemy_connection,
    by_sqlalchemy_session,
    by_async_sqlalchemy_connection,
    by_async_sqlalchemy_session,
    by_django,
]


@pytest.fixture(scope="module")
def engine(holdfast_server: str) -> Iterator[SyncEngine]:
    """One database for all: every test looks only at instances of its own key."""
    with copied_database(holdfast_server) as database, SyncEngine(database.dsn) as engine:
        engine.register("echo", lambda ctx, data: data)
        engine.publish(Flow("order").step("echo", "echo").build())
        engine.publish(
            {
                "name": "approval",
                "kind": "saga",
                "version": 1,
                "entry": "ask",
                "nodes": [{"id": "ask", "kind": "human"}, {"id": "end", "kind": "end"}],
                "edges": [{"id": "yes", "source": "ask", "target": "end", "on": "approved"}],
            }
        )
        yield engine


@pytest.fixture
def key() -> str:
    return f"key-{uuid.uuid4()}"


@pytest.fixture(params=CALLERS, ids=lambda make: make.__name__)
def caller(request: pytest.FixtureRequest, engine: SyncEngine) -> Iterator[Caller]:
    with ExitStack() as stack:
        caller: Caller = request.param(engine, stack)
        stack.callback(caller.rollback)
        yield caller


def instances(engine: SyncEngine, key: str) -> int:
    return count(engine, "select count(*) from holdfast.instances where idempotency_key = %s", key)


def signals(engine: SyncEngine, id: str) -> int:
    return count(engine, "select count(*) from holdfast.signals where instance_id = %s", id)


def count(engine: SyncEngine, question: str, about: str) -> int:
    with psycopg.connect(engine.dsn) as conn:
        row = conn.execute(question.encode(), (about,)).fetchone()
        assert row is not None
        return row[0]


def test_a_start_keeps_what_it_is_found_by(engine: SyncEngine, caller: Caller, key: str) -> None:
    started = engine.start(
        "order",
        {},
        attributes={"customer": key},
        caller=holdfast.Caller(partition="north", correlation="c-1"),
        conn=caller.conn,
    )
    assert engine.list(attributes={"customer": key}).items == []
    caller.commit()
    [found] = engine.list(attributes={"customer": key}).items
    assert found.id == started.id
    assert found.attributes == {"customer": key, "partition_id": "north", "correlation_id": "c-1"}


def test_a_cancel_cannot_promise_a_version(engine: SyncEngine, caller: Caller) -> None:
    id = resting(engine)
    with pytest.raises(Refused) as refusal:
        engine.cancel(id, if_version=1, conn=caller.conn)
    assert (refusal.value.code, signals(engine, id)) == ("OPTION_MISPLACED", 0)


def test_a_version_that_is_over_changes_nothing(engine: SyncEngine) -> None:
    id = resting(engine)
    before = engine.get(id)
    later = before.version + 1
    for change in (engine.suspend, engine.resume, partial(engine.rerun, from_step="ask")):
        with pytest.raises(Conflict) as refusal:
            change(id, if_version=later)
        assert refusal.value.code == "VERSION_CONFLICT"
    assert engine.get(id) == before


def resting(engine: SyncEngine) -> str:
    instance = engine.start("approval", {})
    engine.drain()
    return instance.id


def test_a_start_is_seen_when_its_caller_commits(engine: SyncEngine, caller: Caller, key: str) -> None:
    started = engine.start("order", {"amount": 5}, key=key, business_key="b-1", by="ann", conn=caller.conn)
    assert (started.status, started.version, started.input) == ("pending", 0, {"amount": 5})
    assert (started.key, started.business_key, started.created_by) == (key, "b-1", "ann")
    with pytest.raises(NotFound):
        engine.get(started.id)
    caller.commit()
    assert engine.get(started.id) == started
    engine.drain()
    assert engine.get(started.id).status == "completed"


def test_a_rolled_back_start_never_happened(engine: SyncEngine, caller: Caller, key: str) -> None:
    started = engine.start("order", {}, key=key, conn=caller.conn)
    caller.rollback()
    with pytest.raises(NotFound):
        engine.get(started.id)
    assert (instances(engine, key), signals(engine, started.id)) == (0, 0)


def test_the_same_key_is_the_same_instance_inside_one_transaction(engine: SyncEngine, caller: Caller, key: str) -> None:
    first = engine.start("order", {"n": 1}, key=key, conn=caller.conn)
    assert engine.start("order", {"n": 1}, key=key, conn=caller.conn) == first
    with pytest.raises(Conflict) as refusal:
        engine.start("order", {"n": 2}, key=key, conn=caller.conn)
    assert refusal.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert refusal.value.hint
    caller.rollback()


def test_get_shows_what_the_callers_transaction_sees(engine: SyncEngine, caller: Caller) -> None:
    started = engine.start("order", {}, conn=caller.conn)
    assert engine.get(started.id, conn=caller.conn).status == "pending"
    with pytest.raises(NotFound) as refusal:
        engine.get(UNKNOWN, conn=caller.conn)
    assert refusal.value.code == "INSTANCE_UNKNOWN"


def test_a_signal_waits_for_the_commit_and_for_a_worker(engine: SyncEngine, caller: Caller) -> None:
    id = resting(engine)
    before = engine.get(id)
    assert engine.signal(id, "approved", {"note": "fine"}, by="ann", conn=caller.conn) == before
    assert signals(engine, id) == 0
    caller.commit()
    assert (engine.get(id), signals(engine, id)) == (before, 1)
    engine.drain()
    assert engine.get(id).status == "completed"


def test_a_rolled_back_signal_was_never_sent(engine: SyncEngine, caller: Caller) -> None:
    id = resting(engine)
    engine.signal(id, "approved", conn=caller.conn)
    caller.rollback()
    engine.drain()
    assert engine.get(id).status == "running"


def test_a_signal_id_counts_once(engine: SyncEngine, caller: Caller) -> None:
    id, signal = resting(engine), uuid.uuid4()
    engine.signal(id, "approved", {"n": 1}, id=signal, conn=caller.conn)
    engine.signal(id, "approved", {"n": 1}, id=str(signal), conn=caller.conn)
    with pytest.raises(Conflict) as refusal:
        engine.signal(id, "approved", {"n": 2}, id=signal, conn=caller.conn)
    assert refusal.value.code == "SIGNAL_ID_REUSED"
    caller.rollback()


def test_cancel_is_part_of_the_transaction(engine: SyncEngine, caller: Caller) -> None:
    id = resting(engine)
    engine.cancel(id, reason="changed my mind", by="ann", conn=caller.conn)
    caller.rollback()
    engine.drain()
    assert engine.get(id).status == "running"
    engine.cancel(id, reason="changed my mind", by="ann", conn=caller.conn)
    caller.commit()
    engine.drain()
    assert engine.get(id).status == "cancelled"


def test_what_is_over_takes_no_more_signals(engine: SyncEngine, caller: Caller) -> None:
    id = resting(engine)
    engine.abort(id)
    with pytest.raises(Conflict) as refusal:
        engine.signal(id, "approved", conn=caller.conn)
    assert refusal.value.code == "INSTANCE_OVER"
    caller.rollback()
    with pytest.raises(Conflict) as refusal:
        engine.cancel(id, conn=caller.conn)
    assert refusal.value.code == "INSTANCE_OVER"


def test_an_unknown_instance_is_not_found(engine: SyncEngine, caller: Caller) -> None:
    with pytest.raises(NotFound) as refusal:
        engine.signal(UNKNOWN, "approved", conn=caller.conn)
    assert refusal.value.code == "INSTANCE_UNKNOWN"


def test_a_flow_that_only_the_database_could_miss_is_not_found(engine: SyncEngine, caller: Caller) -> None:
    class Gone(msgspec.Struct):
        name: str = "gone"
        version: int = 1

    verbs = BorrowedVerbs(engine.org)
    with pytest.raises(NotFound) as refusal:
        engine.wait_for(verbs.start(caller.conn, Gone(), b"{}", None, None, None))
    assert refusal.value.code == "FLOW_UNKNOWN"


def test_the_database_checks_what_the_engine_did_not(engine: SyncEngine, caller: Caller) -> None:
    verbs, definition = BorrowedVerbs(engine.org), engine.wait_for(find(engine))
    with pytest.raises(PayloadError):
        engine.wait_for(verbs.start(caller.conn, definition, b'"' + b"x" * 2_100_000 + b'"', None, None, None))
    caller.rollback()
    with pytest.raises(Refused) as refusal:
        engine.wait_for(verbs.start(caller.conn, definition, b"{}", "", None, None))
    assert refusal.value.code == "ARGUMENT_INVALID"
    caller.rollback()
    id = resting(engine)
    with pytest.raises(Refused, match="NUL"):
        engine.signal(id, "a\x00b", conn=caller.conn)
    with pytest.raises(NotFound, match="not an id"):
        engine.signal(id, "approved", id="x", conn=caller.conn)


async def find(engine: SyncEngine) -> Any:
    inner = engine.engine
    return await inner.catalog.find(inner._opened(), engine.org, "order", None)


def test_other_errors_of_the_database_go_through_unchanged(engine: SyncEngine) -> None:
    with psycopg.connect(engine.dsn) as conn:
        with pytest.raises(psycopg.errors.UndefinedTable):
            conn.execute("select * from missing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            engine.start("order", {}, conn=conn)


@pytest.mark.parametrize("make", CALLERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("is_older", [False, True])
def test_a_database_without_holdfast_is_told_by_name(
    engine: SyncEngine, holdfast_server: str, make: Callable[..., Caller], is_older: bool
) -> None:
    """Without the schema, and with one that does not have the function yet."""
    instance = resting(engine)
    with ExitStack() as stack:
        name = f"bare_{uuid.uuid4().hex}"
        admin = stack.enter_context(psycopg.connect(holdfast_server, autocommit=True))
        admin.execute(f"create database {name}")
        stack.callback(lambda: admin.execute(f"drop database {name} with (force)"))
        address = Address(make_conninfo(engine.dsn, dbname=name), engine.wait_for)
        if is_older:
            with psycopg.connect(address.dsn) as conn:
                conn.execute("create schema holdfast")
        caller = make(address, stack)
        for verb in (
            partial(engine.start, "order", {}),
            partial(engine.cancel, instance),
            partial(engine.get, instance),
        ):
            with pytest.raises(StoreError) as refusal:
                verb(conn=caller.conn)
            caller.rollback()
            known = conninfo_to_dict(engine.dsn)
            assert (refusal.value.code, refusal.value.detail["database"]) == ("SCHEMA_MISSING", name)
            assert refusal.value.detail["host"] == known["host"]
            assert repr(name) in refusal.value.message
            assert str(known["host"]) in refusal.value.message
            assert "holdfast db migrate" in refusal.value.hint


def test_what_is_missing_elsewhere_is_the_callers_own(engine: SyncEngine) -> None:
    """A function that a trigger of the caller misses: Holdfast is there, and the error stays as it is."""
    with psycopg.connect(engine.dsn) as conn:
        conn.execute(
            "create function public.broken() returns trigger language plpgsql as"
            " $$ begin perform holdfast.never_was(); return new; end $$"
        )
        conn.execute("create trigger broken before insert on holdfast.instances for each row execute function broken()")
        with pytest.raises(psycopg.errors.UndefinedFunction):
            engine.start("order", {}, conn=conn)
        conn.rollback()


def test_a_serialisation_failure_is_the_callers_to_retry(engine: SyncEngine, key: str) -> None:
    """The row of the same key was committed after this transaction's snapshot: it must begin again, not we."""
    with psycopg.connect(engine.dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select 1")
        engine.start("order", {}, key=key)
        with pytest.raises(psycopg.errors.SerializationFailure):
            engine.start("order", {}, key=key, conn=conn)


def test_autocommit_makes_each_verb_a_transaction(engine: SyncEngine, key: str) -> None:
    with psycopg.connect(engine.dsn, autocommit=True) as conn:
        started = engine.start("order", {}, key=key, conn=conn)
        assert engine.get(started.id).status == "pending"
        with pytest.raises(Conflict):
            engine.start("order", {"other": 1}, key=key, conn=conn)
        assert (instances(engine, key), signals(engine, started.id)) == (1, 1)
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_djangos_atomic_block(engine: SyncEngine, key: str) -> None:
    with ExitStack() as stack:
        caller = by_django(engine, stack)
        from django.db import transaction

        caller.rollback()
        transaction.set_autocommit(True)
        with transaction.atomic():
            engine.start("order", {}, key=key, conn=caller.conn)
            transaction.set_rollback(True)
        assert instances(engine, key) == 0
        with transaction.atomic():
            engine.start("order", {}, key=key, conn=caller.conn)
            assert instances(engine, key) == 0
        assert instances(engine, key) == 1


def test_djangos_hook_wakes_the_workers_instead_of_a_notify_inside(engine: SyncEngine, key: str) -> None:
    """The callers of NOTIFY take turns to commit. What is rolled back to a savepoint neither wakes nor silences."""
    with ExitStack() as stack, psycopg.connect(engine.dsn, autocommit=True) as ears:
        caller = by_django(engine, stack)
        from django.db import transaction

        def muted() -> bool:
            with caller.conn.cursor() as cursor:
                cursor.execute("select current_setting('holdfast.notify', true)")
                return cursor.fetchone()[0] == "off"

        def hinting() -> Iterator[int]:
            return (notice.pid for notice in ears.notifies(timeout=10))

        caller.rollback()
        transaction.set_autocommit(True)
        ears.execute("listen holdfast")
        with transaction.atomic():
            with transaction.atomic():
                engine.start("order", {}, key=f"{key}-back", conn=caller.conn)
                transaction.set_rollback(True)
            assert (muted(), len(caller.conn.run_on_commit)) == (False, 0)
            with transaction.atomic():
                started = engine.start("order", {}, key=key, conn=caller.conn)
            engine.cancel(started.id, conn=caller.conn)
            assert (muted(), len(caller.conn.run_on_commit)) == (True, 2)
            assert instances(engine, key) == 0
        with caller.conn.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            mine = cursor.fetchone()[0]
        assert next(hinting()) != mine
        assert not muted()
        engine.start("order", {}, key=f"{key}-2", conn=caller.conn)  # without a block it is committed already
        assert mine in hinting()


def test_nothing_of_the_callers_session_is_changed(engine: SyncEngine) -> None:
    state = "select current_user, coalesce(current_setting('holdfast.org', true), ''), current_setting('search_path')"
    with psycopg.connect(engine.dsn) as conn:
        before = conn.execute(state).fetchone()
        engine.start("order", {}, conn=conn)
        assert conn.execute(state).fetchone() == before
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS


def test_a_login_acts_only_for_its_organisation(engine: SyncEngine) -> None:
    login = f"tenant_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(engine.dsn, autocommit=True) as admin:
        admin.execute(f"create role {login} login in role holdfast_tenant")
        try:
            with psycopg.connect(engine.dsn) as conn:
                conn.execute(f"set session authorization {login}")
                with pytest.raises(Forbidden) as refusal:
                    engine.start("order", {}, conn=conn)
                assert refusal.value.code == "ORG_FORBIDDEN"
                conn.rollback()
            admin.execute("insert into holdfast.tenant_grants (role_name, org_id) values (%s, 'default')", (login,))
            with psycopg.connect(engine.dsn) as conn:
                conn.execute(f"set session authorization {login}")
                conn.execute("set local holdfast.org = 'default'")
                assert engine.start("order", {}, conn=conn).status == "pending"
                conn.rollback()
        finally:
            admin.execute(f"drop role {login}")


@pytest.mark.parametrize("conn", [object(), "postgresql://", sqlalchemy.create_engine("postgresql+psycopg://")])
def test_what_is_no_connection_is_refused(engine: SyncEngine, conn: Any) -> None:
    with pytest.raises(HoldfastError) as refusal:
        engine.start("order", {}, conn=conn)
    assert refusal.value.code == "CONNECTION_UNSUPPORTED"


def test_the_async_engine_takes_both_kinds(engine: SyncEngine, key: str) -> None:
    async def scenario() -> None:
        from holdfast.runtime.engine import Engine

        async with Engine(engine.dsn) as inner, await psycopg.AsyncConnection.connect(engine.dsn) as conn:
            await inner.start("order", {}, key=key, conn=conn)
            with psycopg.connect(engine.dsn) as blocking:
                await inner.start("order", {}, key=f"{key}-2", conn=blocking)

    asyncio.run(scenario())
    assert (instances(engine, key), instances(engine, f"{key}-2")) == (1, 1)


def test_every_statement_fits_the_schema(engine: SyncEngine) -> None:
    folder = resources.files("holdfast.store").joinpath("sql", "caller")
    files = [file for file in folder.iterdir() if file.name.endswith(".sql")]
    assert len(files) == 8
    with psycopg.connect(engine.dsn) as conn:
        for file in files:
            text = file.read_text()
            assert text.startswith("-- ")
            conn.execute(f"prepare {file.name[:-4]} as {text}".encode())
