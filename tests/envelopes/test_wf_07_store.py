"""WF-07, as far as the database: only an unaltered effective graph is linked, and no start takes any."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from attackers import ATTACKERS, Db
from document_office import invoice

from holdfast import Engine
from holdfast.errors import DefinitionError, HoldfastError
from holdfast.runtime.catalog import Catalog

pytestmark = pytest.mark.anyio

START = "select holdfast.start('document:invoice', org => 'default')"
INSTANCE = (
    "insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state,"
    " data, input, created_at, updated_at) select i.id, get_byte(uuid_send(i.id), 15), 'default', d.id, d.name,"
    " d.version, 'pending', 0, '{}', '{}', '{}', now(), now() from holdfast.definitions d,"
    " (select gen_random_uuid() as id) i"
    " where d.kind = %s and d.org_id = 'default' order by d.version limit 1 returning id"
)


def sqlstate(db: Db, statement: str, *given: Any) -> str | None:
    with pytest.raises(psycopg.Error) as caught, db.transaction():
        db.execute(statement, given)
    return caught.value.sqlstate


@pytest.mark.parametrize("who", ATTACKERS)
async def test_no_login_starts_the_graph_of_documents_by_sql(
    published: Engine, logins: dict[str, Db], who: str
) -> None:
    logins["owner"].execute(
        "insert into holdfast.tenant_grants (role_name, org_id) select rolname, 'default' from pg_roles"
        " where rolname = %s", (logins["tenant"].info.user,),
    )  # fmt: skip
    expected = "42501" if who == "stranger" else "HF422"
    assert sqlstate(logins[who], START) == expected
    assert logins["owner"].execute("select count(*) from holdfast.instances").fetchone() == (0,)


async def test_an_envelope_or_a_patch_is_no_flow_for_sql(engine: Engine, logins: dict[str, Db]) -> None:
    """Rows of the same name, one of them forged as if it could run, and none of them is found."""
    await engine.publish_contract(invoice(approvals=1), by="ann")
    logins["owner"].execute(
        "insert into holdfast.definitions (id, org_id, kind, name, version, entity_type, status, patches, base_ref,"
        " source, compiled, hash, compiler_version, created_at, published_at) values (gen_random_uuid(), 'default',"
        " 'org_patch', 'document:invoice', 9, 'invoice', 'published', '{}', '{}', '{}', '{\"kind\": \"saga\"}', 'x',"
        " '1', now(), now())"
    )
    assert sqlstate(logins["owner"], START) == "HF404"
    with pytest.raises(HoldfastError) as caught:
        await engine.start("document:invoice")
    assert caught.value.code == "FLOW_UNKNOWN"


@pytest.mark.parametrize("kind", ["envelope", "org_patch"])
async def test_an_instance_forged_upon_one_never_runs(published: Engine, logins: dict[str, Db], kind: str) -> None:
    [row] = logins["owner"].execute(INSTANCE, (kind,)).fetchall()
    definition = (
        logins["owner"].execute("select definition_id from holdfast.instances where id = %s", (row[0],)).fetchone()
    )
    assert definition is not None
    with pytest.raises(DefinitionError) as caught:
        await Catalog().program(published._opened(), definition[0].bytes)  # pyright: ignore[reportPrivateUsage]
    assert caught.value.code == "WORKFLOW_NOT_COMPILED"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("compiled = jsonb_set(compiled, '{nodes,sys:gate:approve,config,approvals}', '7')", "WORKFLOW_HASH_MISMATCH"),
        ("compiled = jsonb_set(compiled, '{config}', '{}')", "WORKFLOW_HASH_MISMATCH"),
        ("compiled = compiled #- '{nodes,usr:review:check}'", "WORKFLOW_HASH_MISMATCH"),
        ("hash = repeat('0', 64)", "WORKFLOW_HASH_MISMATCH"),
        ("compiled = 'null'", "WORKFLOW_NOT_COMPILED"),
    ],
)
async def test_a_graph_altered_with_the_guards_switched_off_is_not_loaded(
    published: Engine, logins: dict[str, Db], change: str, code: str
) -> None:
    owner = logins["owner"]
    with owner.transaction():
        owner.execute("alter table holdfast.definitions disable trigger user")
        done = owner.execute(f"update holdfast.definitions set {change} where kind = 'effective' and version = 3")
        owner.execute("alter table holdfast.definitions enable trigger user")
    assert done.rowcount == 1
    for attempt in (published.effective("invoice"), published.start("document:invoice")):
        with pytest.raises(DefinitionError) as caught:
            await attempt
        assert caught.value.code == code


async def test_a_contract_altered_with_the_guards_switched_off_is_not_read(
    published: Engine, logins: dict[str, Db]
) -> None:
    owner = logins["owner"]
    with owner.transaction():
        owner.execute("alter table holdfast.definitions disable trigger user")
        owner.execute(
            "update holdfast.definitions set source = jsonb_set(source, '{verbs,0,capability}', '\"none\"')"
            " where kind = 'envelope'"
        )
        owner.execute("alter table holdfast.definitions enable trigger user")
    with pytest.raises(DefinitionError) as caught:
        await published.contract("invoice")
    assert caught.value.code == "WORKFLOW_HASH_MISMATCH"
