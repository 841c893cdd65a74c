"""Who may see and change what: tenants their own rows only, workers everything but history."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import schema_rows as rows
from schema_rows import insert

pytest_plugins = ("schema_db",)

Db = psycopg.Connection[Any]

DENIED = "42501"

TENANT_TABLES = ("instances", "steps", "events", "definitions", "dead_letters", "effects", "timers")
APPEND_ONLY = ("step_receipts", "outbox_receipts", "events")


@pytest.fixture
def world(db: Db) -> Db:
    """Rows of two organisations and of the system."""
    for org in ("acme", "globex"):
        insert(db, "instances", rows.instance(org_id=org))
        insert(db, "steps", rows.step(org_id=org))
        insert(db, "events", rows.event(org_id=org))
        insert(db, "effects", rows.effect(org_id=org))
        insert(db, "step_receipts", rows.receipt(org_id=org))
    for org in ("acme", "globex", "_system"):
        insert(db, "definitions", rows.definition(org_id=org))
    return db


def orgs(db: Db, table: str) -> set[str]:
    return {org for (org,) in db.execute(f"select org_id from holdfast.{table}")}


def denied(db: Db, statement: str) -> None:
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(statement)
    assert caught.value.sqlstate == DENIED


def test_every_table_with_an_organisation_is_secured(db: Db) -> None:
    open_tables = db.execute(
        """
        select c.oid::regclass::text from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'org_id'
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p')
          and not (c.relrowsecurity and c.relforcerowsecurity
              and exists (select from pg_policy p where p.polrelid = c.oid and p.polname = 'worker'))
        """
    ).fetchall()
    assert open_tables == []


def test_every_key_ends_with_the_bucket(db: Db) -> None:
    wrong = db.execute(
        """
        select i.indexrelid::regclass::text from pg_index i
        join pg_attribute b on b.attrelid = i.indrelid and b.attname = 'bucket'
        join pg_class c on c.oid = i.indrelid and c.relnamespace = 'holdfast'::regnamespace
        where i.indisunique and i.indkey[i.indnkeyatts - 1] <> b.attnum
        """
    ).fetchall()
    assert wrong == []


def test_a_tenant_sees_its_own_rows(world: Db) -> None:
    world.execute("set local role holdfast_tenant")
    world.execute("set local holdfast.org = 'acme'")
    assert orgs(world, "instances") == {"acme"}
    assert orgs(world, "steps") == {"acme"}
    assert orgs(world, "events") == {"acme"}
    assert orgs(world, "effects") == {"acme"}
    assert orgs(world, "definitions") == {"acme", "_system"}


@pytest.mark.parametrize("setting", ["", "nobody", "%"])
def test_a_tenant_without_an_organisation_sees_nothing(world: Db, setting: str) -> None:
    world.execute("set local role holdfast_tenant")
    world.execute("select set_config('holdfast.org', %s, true)", (setting,))
    for table in TENANT_TABLES:
        assert orgs(world, table) <= {"_system"}


def test_a_tenant_without_the_setting_sees_nothing(world: Db) -> None:
    world.execute("set local role holdfast_tenant")
    assert orgs(world, "instances") == set()


def test_a_tenant_changes_nothing(world: Db) -> None:
    world.execute("set local role holdfast_tenant")
    world.execute("set local holdfast.org = 'acme'")
    for table in TENANT_TABLES:
        denied(world, f"insert into holdfast.{table} default values")
        denied(world, f"update holdfast.{table} set org_id = 'acme'")
        denied(world, f"delete from holdfast.{table}")


@pytest.mark.parametrize(
    "table",
    [
        "step_receipts",
        "outbox_receipts",
        "work",
        "signals",
        "inbox",
        "event_keys",
        "key_events",
        "key_waits",
        "workers",
    ],
)
def test_a_tenant_does_not_read_the_machinery(world: Db, table: str) -> None:
    world.execute("set local role holdfast_tenant")
    denied(world, f"select from holdfast.{table}")


def test_partitions_are_no_way_around(world: Db) -> None:
    names = [
        name
        for (name,) in world.execute(
            "select inhrelid::regclass::text from pg_inherits where inhparent in ("
            "'holdfast.steps'::regclass, 'holdfast.events'::regclass, 'holdfast.effects'::regclass)"
        )
    ]
    assert len(names) >= 15
    world.execute("set local role holdfast_tenant")
    for name in names:
        denied(world, f"select from {name}")
    world.execute("set local role holdfast_worker")
    for name in names:
        if "effects" in name or "default" in name:
            denied(world, f"select from {name}")
        else:  # the commit path names the month it writes to, and may do there what it may do to the whole table
            _check_month(world, name)


def _check_month(world: Db, name: str) -> None:
    world.execute(f"select from {name}")
    denied(world, f"delete from {name}")
    denied(world, f"truncate {name}")
    denied(world, f"update {name} set node = 'another'")
    if "steps" in name:
        world.execute(f"update {name} set status = 'completed' where false")
    else:
        denied(world, f"update {name} set type = 'another'")


def test_a_worker_sees_and_writes_every_organisation(world: Db) -> None:
    world.execute("set local role holdfast_worker")
    assert orgs(world, "instances") == {"acme", "globex"}
    row = insert(world, "instances", rows.instance(org_id="initech"))
    changed = world.execute("update holdfast.instances set version = 2 where id = %s", (row["id"],))
    assert changed.rowcount == 1
    assert world.execute("select from holdfast.instances for update").rowcount == 3
    assert world.execute("select from holdfast.steps for update").rowcount == 2


def test_a_worker_closes_steps_but_never_rewrites_them(world: Db) -> None:
    world.execute("set local role holdfast_worker")
    assert world.execute("update holdfast.steps set status = 'completed', calls = 1, fence = 2").rowcount == 2
    for column in ("node", "input", "receipt_key", "created_at", "detail", "opened_by"):
        denied(world, f"update holdfast.steps set {column} = {column}")


@pytest.mark.parametrize("table", [*APPEND_ONLY, "steps", "instances", "definitions", "effects", "dead_letters"])
def test_a_worker_never_deletes_history(world: Db, table: str) -> None:
    world.execute("set local role holdfast_worker")
    denied(world, f"delete from holdfast.{table}")
    denied(world, f"truncate holdfast.{table}")


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_a_worker_only_appends(world: Db, table: str) -> None:
    world.execute("set local role holdfast_worker")
    denied(world, f"update holdfast.{table} set org_id = org_id")


def test_a_worker_does_not_touch_the_schema(world: Db) -> None:
    world.execute("set local role holdfast_worker")
    denied(world, "insert into holdfast.schema_version values (99, 'x', 'x', now())")
    denied(world, "insert into holdfast.tenant_grants values ('passer_by', 'acme')")
    denied(world, "create table holdfast.mine ()")
    denied(world, "select holdfast.attach_partition('steps', 'steps_x', 'fillfactor = 50', null, null)")
    world.execute("select holdfast.ensure_partitions()")


def test_a_stranger_gets_nowhere(world: Db) -> None:
    world.execute("create role passer_by")
    world.execute("set local role passer_by")
    denied(world, "select from holdfast.instances")
    denied(world, "select holdfast.start('order')")
    denied(world, "select holdfast.expect('x', 1, 1)")


def test_only_the_verbs_are_open_to_tenants(db: Db) -> None:
    names = {
        name
        for (name,) in db.execute(
            "select proname from pg_proc where pronamespace = 'holdfast'::regnamespace"
            " and has_function_privilege('holdfast_tenant', oid, 'execute')"
        )
    }
    computing = {"attribute_value", "clock", "fits", "letter_fits"}  # read no table of tenants
    asked_by_policies = {"visible_org"}
    verbs = names - computing - asked_by_policies
    machines = {"trigger", "trigger_answer", "ack", "receive"}
    assert verbs == {"start", "signal", "signal_key", "cancel", "get", "decide"} | machines


def test_functions_with_raised_rights_pin_their_search_path(db: Db) -> None:
    loose = db.execute(
        """
        select proname from pg_proc
        where pronamespace = 'holdfast'::regnamespace and prosecdef
          and not coalesce(proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']
        """
    ).fetchall()
    assert loose == []


# --- the catalogue: what is added later is covered as well, or these tests say so -------------------------------------

# Tables without an organisation: none of them tells a tenant anything.
OF_NOBODY = {"schema_version", "workers", "upkeep", "upkeep_runs"}
VERBS: dict[str, str] = {
    "start": "select holdfast.start('order', org => %(org)s)",
    "signal": "select holdfast.signal(%(instance)s, 'go', org => %(org)s)",
    "signal_key": "select holdfast.signal_key('go', 'key', org => %(org)s)",
    "cancel": "select holdfast.cancel(%(instance)s, org => %(org)s)",
    "get": "select holdfast.get(%(instance)s, org => %(org)s)",
    "decide": "select holdfast.decide(%(instance)s, 'approved', org => %(org)s)",
    "trigger": "select holdfast.trigger('prod', 'order', %(instance)s::text, 'go', org => %(org)s)",
    "trigger_answer": "select holdfast.trigger_answer('prod', 'order', %(instance)s::text, 'r-1', org => %(org)s)",
    "ack": "select holdfast.ack('billing', %(instance)s::text, org => %(org)s)",
    "receive": "select holdfast.receive('ledger', environment => 'prod', org => %(org)s)",
}
ABOUT_ONE = ("signal", "cancel", "get", "decide")


@pytest.fixture
def login(world: Db) -> Db:
    """A login that a tenant's own program would have: the role, and one organisation it may act for."""
    world.execute("create role visitor in role holdfast_tenant")
    world.execute("insert into holdfast.tenant_grants (role_name, org_id) values ('visitor', 'acme')")
    return world


def told(db: Db, statement: str, **values: Any) -> tuple[str | None, str]:
    """What a visitor is answered: how it was refused and in which words, or what was found."""
    try:
        with db.transaction():
            db.execute("set local session authorization visitor")
            return None, str(db.execute(statement, values).fetchall())
    except psycopg.Error as error:
        return error.sqlstate, str(error.diag.message_primary)


def test_every_table_of_tenants_lets_them_see_their_own_rows_only(db: Db) -> None:
    """By the grant, asked once in a sub-select: a setting read for each row could change within a statement."""
    conditions = db.execute(
        """
        select c.relname, pg_get_expr(p.polqual, c.oid) from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attname = 'org_id'
        left join pg_policy p on p.polrelid = c.oid and p.polroles = array['holdfast_tenant'::regrole::oid]
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
        """
    ).fetchall()
    granted = "( SELECT holdfast.visible_org() AS visible_org)"
    expected = dict.fromkeys((table for table, _ in conditions), f"(org_id = {granted})")
    shared = dict.fromkeys(("definitions", "decision_tables"), f"(org_id = ANY (ARRAY['_system'::text, {granted}]))")
    assert dict(conditions) == expected | shared


def test_no_other_policy_and_no_other_role_opens_a_table(db: Db) -> None:
    policies = db.execute(
        "select distinct polname, polroles::regrole[]::text from pg_policy p join pg_class c on c.oid = p.polrelid"
        " where c.relnamespace = 'holdfast'::regnamespace order by 1"
    ).fetchall()
    assert policies == [("tenant", "{holdfast_tenant}"), ("worker", "{holdfast_worker}")]
    readers = db.execute(
        """
        select distinct grantee::regrole::text from pg_class c, aclexplode(c.relacl) as g
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and grantee <> c.relowner
        """
    ).fetchall()
    assert {name for (name,) in readers} == {"holdfast_tenant", "holdfast_worker", "holdfast_maintenance"}


def test_tables_without_an_organisation_are_closed_to_tenants(db: Db) -> None:
    tables = db.execute(
        """
        select c.relname, has_any_column_privilege('holdfast_tenant', c.oid, 'select') from pg_class c
        where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
          and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'org_id')
        """
    ).fetchall()
    assert dict(tables) == dict.fromkeys({name for name, _ in tables}, False)
    assert {name for name, _ in tables} == OF_NOBODY


def test_views_look_with_the_eyes_of_whoever_asks(db: Db) -> None:
    views = db.execute(
        "select relname from pg_class where relnamespace = 'holdfast'::regnamespace and (relkind in ('m', 'f')"
        " or relkind = 'v' and not coalesce(reloptions, '{}') @> array['security_invoker=true'])"
    ).fetchall()
    assert views == []


def test_the_roles_are_bound_by_the_policies(db: Db) -> None:
    roles = db.execute(
        "select rolname, rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolcanlogin from pg_roles"
        " where rolname in ('holdfast_tenant', 'holdfast_worker', 'holdfast_maintenance')"
    ).fetchall()
    assert dict(roles) == {"holdfast_tenant": False, "holdfast_worker": False, "holdfast_maintenance": False}
    owned = db.execute("select count(*) from pg_class where relowner::regrole::text like 'holdfast\\_%'").fetchone()
    assert owned == (0,)
    for role in ("holdfast_worker", "holdfast_maintenance"):
        assert db.execute("select pg_has_role('holdfast_tenant', %s, 'member')", (role,)).fetchone() == (False,)


@pytest.mark.parametrize("setting", [None, "", "globex"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_login_acts_for_its_own_organisation_only(login: Db, verb: str, setting: str | None) -> None:
    """Named in the call, in the setting, or in both: somebody else's organisation is refused at once."""
    if setting is not None:
        login.execute("select set_config('holdfast.org', %s, true)", (setting,))
    [(theirs,)] = login.execute("select id from holdfast.instances where org_id = 'globex'").fetchall()
    state, message = told(login, VERBS[verb], instance=theirs, org="globex")
    assert state == "HF403"
    assert message == 'Login "visitor" may not act for organisation "globex"'


@pytest.mark.parametrize("verb", ABOUT_ONE)
def test_what_others_have_is_like_what_nobody_has(login: Db, verb: str) -> None:
    [(theirs,)] = login.execute("select id from holdfast.instances where org_id = 'globex'").fetchall()
    nobody = rows.instance()["id"]
    for org in (None, "acme"):
        foreign = told(login, VERBS[verb], instance=theirs, org=org)
        absent = told(login, VERBS[verb], instance=nobody, org=org)
        assert foreign[0] == absent[0] == (None if verb == "get" else "HF404")
        assert foreign[1].replace(str(theirs), "") == absent[1].replace(str(nobody), "")


def test_each_verb_that_tenants_may_call_is_tried(db: Db) -> None:
    defined = db.execute(
        "select distinct proname from pg_proc where pronamespace = 'holdfast'::regnamespace and prosecdef"
        " and has_function_privilege('holdfast_tenant', oid, 'execute')"
    ).fetchall()
    assert {name for (name,) in defined} == {*VERBS, "visible_org"}


def test_the_same_key_starts_one_instance_in_each_organisation(login: Db) -> None:
    start = "select holdfast.start('order', key => 'k-1', org => %s)"
    [(theirs,)] = login.execute(start, ("globex",)).fetchall()
    with login.transaction():
        login.execute("set local session authorization visitor")
        [(mine,)] = login.execute(start, ("acme",)).fetchall()
        assert login.execute(start, ("acme",)).fetchall() == [(mine,)]
    assert mine != theirs
