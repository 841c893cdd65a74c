"""What a login sees that runs SQL of its own: the setting names an organisation, the grant decides."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import schema_rows as rows
from psycopg import sql
from psycopg.conninfo import make_conninfo
from schema_rows import insert

from holdfast.store.admin.schema import migrate

pytest_plugins = ("schema_db",)

Db = psycopg.Connection[Any]

READ = ("instances", "steps", "events", "effects", "definitions")
VERBS = (
    "select holdfast.start('order')",
    "select holdfast.signal(%(instance)s, 'go')",
    "select holdfast.signal_key('go', 'key')",
    "select holdfast.cancel(%(instance)s)",
    "select holdfast.decide(%(instance)s, 'approved')",
)


@pytest.fixture(scope="module")
def filled_dsn(admin_dsn: str) -> Iterator[str]:
    """A database of two organisations and of the system."""
    from schema_db import new_database  # here, because pytest wants to import that module first

    with new_database(admin_dsn) as dsn:
        migrate(dsn)
        with psycopg.connect(dsn) as admin:
            for org in ("acme", "globex"):
                for _ in range(3):
                    insert(admin, "instances", rows.instance(org_id=org))
                    insert(admin, "steps", rows.step(org_id=org))
                    insert(admin, "events", rows.event(org_id=org))
                    insert(admin, "effects", rows.effect(org_id=org))
            for org in ("acme", "globex", "_system"):
                insert(admin, "definitions", rows.definition(org_id=org))
        yield dsn


@pytest.fixture
def admin(filled_dsn: str) -> Iterator[Db]:
    with psycopg.connect(filled_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def visitor(admin: Db, filled_dsn: str) -> Iterator[Db]:
    """A connection with a login of its own, a tenant that may act for acme."""
    with _login(admin, filled_dsn, "holdfast_tenant") as connection:
        admin.execute(
            "insert into holdfast.tenant_grants (role_name, org_id) values (%s, 'acme')", (connection.info.user,)
        )
        yield connection


class _login:
    """A connection under a new login that is a member of `role`; both are gone afterwards."""

    def __init__(self, admin: Db, dsn: str, role: str) -> None:
        self._admin = admin
        self._dsn = dsn
        self._role = role
        self._name = f"visitor_{uuid.uuid4().hex[:12]}"

    def __enter__(self) -> Db:
        create = sql.SQL("create role {} login password {} in role {}")
        self._admin.execute(create.format(sql.Identifier(self._name), self._name, sql.Identifier(self._role)))
        dsn = make_conninfo(self._dsn, user=self._name, password=self._name)
        self._connection = psycopg.connect(dsn, autocommit=True)
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._admin.execute("delete from holdfast.tenant_grants where role_name = %s", (self._name,))
        self._admin.execute(sql.SQL("drop role {}").format(sql.Identifier(self._name)))


def choose(db: Db, org: str) -> None:
    db.execute("select set_config('holdfast.org', %s, false)", (org,))


def orgs(db: Db, table: str) -> set[str]:
    return {org for (org,) in db.execute(sql.SQL("select org_id from holdfast.{}").format(sql.Identifier(table)))}


@pytest.mark.parametrize("role", ["none", "holdfast_tenant"])
def test_a_login_sees_what_it_was_granted_whatever_it_sets(visitor: Db, role: str) -> None:
    visitor.execute("select set_config('role', %s, false)", (role,))
    for org, seen in {"acme": {"acme"}, "globex": set[str](), "_system": set[str](), "": set[str]()}.items():
        choose(visitor, org)
        for table in READ:
            assert orgs(visitor, table) - {"_system"} == seen, (org, table)


def test_a_statement_that_changes_the_setting_sees_no_more(visitor: Db) -> None:
    for statement in (
        "select org_id, set_config('holdfast.org', 'globex', false) from holdfast.instances",
        "select org_id from holdfast.instances where set_config('holdfast.org', 'globex', false) = 'globex'",
        "with other as materialized (select set_config('holdfast.org', 'globex', false) as org)"
        " select i.org_id from other join holdfast.instances i on other.org is not null",
        "select i.org_id from (select set_config('holdfast.org', 'globex', false) from generate_series(1, 2)) as o"
        " cross join lateral (select org_id from holdfast.instances) as i",
    ):
        choose(visitor, "acme")
        assert {row[0] for row in visitor.execute(statement)} <= {"acme"}, statement


def test_grants_count_at_once_also_for_prepared_statements(admin: Db, visitor: Db) -> None:
    def seen() -> set[str]:
        return {org for (org,) in visitor.execute("select org_id from holdfast.instances", prepare=True)}

    choose(visitor, "globex")
    assert [seen() for _ in range(7)] == [set()] * 7  # the plan is a generic one by now
    admin.execute("insert into holdfast.tenant_grants values (%s, 'globex')", (visitor.info.user,))
    assert seen() == {"globex"}
    choose(visitor, "acme")
    assert seen() == {"acme"}
    admin.execute("delete from holdfast.tenant_grants where role_name = %s", (visitor.info.user,))
    assert seen() == set()


def test_a_login_writes_nothing_for_others(admin: Db, visitor: Db) -> None:
    written = "select (select count(*) from holdfast.instances), (select count(*) from holdfast.signals),"
    written += " (select count(*) from holdfast.inbox), (select count(*) from holdfast.key_events)"
    before = admin.execute(written).fetchone()
    [(theirs,)] = admin.execute("select id from holdfast.instances where org_id = 'globex' limit 1").fetchall()
    choose(visitor, "globex")
    for verb in VERBS:
        with pytest.raises(psycopg.Error) as refused:
            visitor.execute(verb, {"instance": theirs})
        assert refused.value.sqlstate == "HF403", verb
    for table in READ:
        for change in ("update holdfast.{} set org_id = 'acme'", "delete from holdfast.{}"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                visitor.execute(sql.SQL(change).format(sql.Identifier(table)))
    assert admin.execute(written).fetchone() == before


def test_grants_are_an_administrators(visitor: Db) -> None:
    for statement in (
        "insert into holdfast.tenant_grants select session_user, 'globex'",
        "update holdfast.tenant_grants set org_id = 'globex'",
        "select from holdfast.tenant_grants",
        "set role holdfast_worker",
        "set session authorization holdfast_worker",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            visitor.execute(statement)


def test_the_login_of_a_server_reads_for_everybody(admin: Db, filled_dsn: str) -> None:
    """It has no grants: in the role of tenants the setting alone decides, as long as the transaction lasts."""
    with _login(admin, filled_dsn, "holdfast_worker") as server:
        admin.execute(sql.SQL("grant holdfast_tenant to {}").format(sql.Identifier(server.info.user)))
        for org in ("acme", "globex"):
            with server.transaction():
                server.execute("set local role holdfast_tenant")
                server.execute("select set_config('holdfast.org', %s, true)", (org,))
                assert orgs(server, "instances") == {org}


@pytest.mark.parametrize(("role", "asked"), [("holdfast_tenant", 1), ("holdfast_worker", 0), ("none", 0)])
def test_the_grant_is_asked_once_for_a_table_and_never_by_workers(
    admin: Db, filled_dsn: str, role: str, asked: int
) -> None:
    """Rows do not count, and a server's login pays nothing where it is not a tenant, though it is in both roles."""
    with _login(admin, filled_dsn, "holdfast_worker") as server:
        name = sql.Identifier(server.info.user)
        admin.execute(sql.SQL("grant holdfast_tenant to {}").format(name))
        admin.execute(sql.SQL("grant set on parameter track_functions to {}").format(name))
        try:
            with server.transaction():
                server.execute("set local track_functions = 'all'")
                server.execute("select set_config('role', %s, true), set_config('holdfast.org', 'acme', true)", (role,))
                assert len(server.execute("select from holdfast.instances where org_id = 'acme'").fetchall()) == 3
                server.execute("reset role")
                counted = "select coalesce(pg_stat_get_xact_function_calls('holdfast.visible_org'::regproc), 0)"
                assert server.execute(counted).fetchone() == (asked,)
        finally:
            admin.execute(sql.SQL("revoke all on parameter track_functions from {}").format(name))
