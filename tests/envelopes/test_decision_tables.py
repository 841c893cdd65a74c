"""Decision tables in the database: versions that never change, and the ones that patches take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import psycopg
import pytest
from attackers import ATTACKERS, Db
from msgspec.structs import replace

from holdfast import CallVerb, DecisionTable, Engine, load_contracts
from holdfast.doors.envelope import ContractFile, TableDefinition
from holdfast.errors import Conflict, DefinitionError, HoldfastError
from holdfast.runtime.envelopes.templates import read_template

pytestmark = pytest.mark.anyio


def limits(version: int = 1, *, bound: int = 50000, name: str = "invoice_limits", about: str = "") -> TableDefinition:
    table = DecisionTable(name, version, about=about or None).column("total", "money", least=1)
    return table.row({"signatures": 0}, {"total": {"below": bound}}).row({"signatures": 1}).build()


@pytest.fixture
def file() -> ContractFile:
    return load_contracts(read_template("invoice_approval")).require_sound()


async def refusal(attempt: Awaitable[object]) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        await attempt
    assert caught.value.hint
    return caught.value


async def pinned(engine: Engine) -> dict[str, Any]:
    return (await engine.effective("invoice")).graph.config["tables"]


async def in_force(engine: Engine, file: ContractFile, version: int | None = None) -> None:
    """Publish the patch of the file; its rule names this version of the table, or none."""
    [patch] = file.patches
    review = patch.slots["review"]
    nodes = tuple(replace(n, table_version=version) if n.kind == "rule" else n for n in review.nodes)
    await engine.save_patch_draft(replace(patch, slots={"review": replace(review, nodes=nodes)}), by="ann")
    await engine.publish_patch("invoice", by="ann")


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_a_table_comes_back_as_it_was_written(engine: Engine) -> None:
    done = await engine.publish_table(limits(), by="ann", reason="audit")
    assert done.new
    found = await engine.table("invoice_limits")
    assert (found.table, found.hash, found.created_by, found.reason) == (limits(), done.hash, "ann", "audit")
    assert (found.org, found.version) == ("default", 1)


@pytest.mark.parametrize("number", [0.1, 1.0, -1e15, 2**53 - 1, 5e-324])
async def test_numbers_survive_the_database(engine: Engine, number: float) -> None:
    bound = min(number, 1e15)
    table = DecisionTable("n").column("x", "number").row({"y": number}, {"x": {"below": bound}}).row({"y": 0}).build()
    await engine.publish_table(table, by="ann")
    assert (await engine.table("n")).table == table


async def test_the_same_content_again_changes_nothing(engine: Engine) -> None:
    first = await engine.publish_table(limits(), by="ann")
    again = await engine.publish_table(limits(about="for people"), by="ben")
    assert again == replace(first, new=False)
    assert (await engine.table("invoice_limits")).created_by == "ann"


async def test_a_version_with_other_content_is_a_conflict(engine: Engine) -> None:
    await engine.publish_table(limits(), by="ann")
    refused = await refusal(engine.publish_table(limits(bound=7), by="ann"))
    assert isinstance(refused, Conflict)
    assert refused.code == "VERSION_TAKEN"
    assert (await engine.table("invoice_limits")).table == limits()


async def test_two_publish_one_version_at_once_and_one_wins(engine: Engine) -> None:
    attempts = [engine.publish_table(limits(bound=10 + n), by=f"p{n}") for n in range(6)]
    done = await asyncio.gather(*attempts, return_exceptions=True)
    assert [one.code for one in done if isinstance(one, Conflict)] == ["VERSION_TAKEN"] * 5


async def test_the_newest_version_has_the_highest_number(engine: Engine) -> None:
    for version in (2, 10, 9):
        await engine.publish_table(limits(version, bound=version), by="ann")
    assert (await engine.table("invoice_limits")).version == 10
    assert (await engine.table("invoice_limits", 9)).table == limits(9, bound=9)
    assert [one.version for one in await engine.tables()] == [10]


async def test_what_is_not_there_is_told(engine: Engine) -> None:
    assert (await refusal(engine.table("invoice_limits"))).code == "TABLE_UNKNOWN"
    await engine.publish_table(limits(), by="ann")
    assert (await refusal(engine.table("invoice_limits", 2))).code == "VERSION_UNKNOWN"
    assert (await refusal(engine.publish_table(limits(2), by=""))).code == "ACTOR_MISSING"


async def test_a_wrong_table_is_not_stored(engine: Engine) -> None:
    gap = replace(limits(), rows=limits().rows[:1])
    refused = await refusal(engine.publish_table(gap, by="ann"))
    assert isinstance(refused, DefinitionError)
    assert [found.code for found in refused.diagnostics] == ["TABLE_GAP"]
    assert await engine.tables() == []


async def test_pages_follow_by_name(engine: Engine) -> None:
    for name in ("c", "a", "b"):
        await engine.publish_table(limits(name=name), by="ann")
    page = await engine.tables(limit=2)
    rest = await engine.tables(after=page[-1].name)
    assert [one.name for one in (*page, *rest)] == ["a", "b", "c"]


# --- organisations ----------------------------------------------------------------------------------------------------


async def test_a_table_of_ones_own_hides_that_of_the_system(engine: Engine, holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn, org="_system") as system, Engine(holdfast_dsn, org="globex") as globex:
        for version in (1, 2):
            await system.publish_table(limits(version, bound=version + 5), by="vendor")
        assert ((await engine.table("invoice_limits")).org, (await engine.tables())[0].version) == ("_system", 2)
        await engine.publish_table(limits(1, bound=70), by="ann")
        assert (await engine.table("invoice_limits")).table == limits(1, bound=70)
        assert [(one.org, one.version) for one in await engine.tables()] == [("default", 1)]
        assert (await refusal(engine.table("invoice_limits", 2))).code == "VERSION_UNKNOWN"
        assert (await globex.table("invoice_limits")).version == 2


# --- patches ----------------------------------------------------------------------------------------------------------


async def test_a_patch_takes_the_newest_version_and_keeps_it(engine: Engine, file: ContractFile) -> None:
    await engine.publish_contract(file.contracts[0], by="vendor")
    await engine.publish_table(file.tables[0], by="ann")
    second = await engine.publish_table(limits(2), by="ann")
    await in_force(engine, file)
    before = await engine.effective("invoice")
    assert {name: table["hash"] for name, table in (await pinned(engine)).items()} == {"invoice_limits@2": second.hash}
    await engine.publish_table(limits(3, bound=9), by="ann")
    assert await engine.effective("invoice") == before
    await engine.restore_patch("invoice", before.version, by="ann")
    assert list(await pinned(engine)) == ["invoice_limits@3"]


async def test_a_patch_takes_the_version_it_names(engine: Engine, file: ContractFile) -> None:
    await engine.publish_contract(file.contracts[0], by="vendor")
    for version in (1, 2):
        await engine.publish_table(limits(version, bound=version + 5), by="ann")
    await in_force(engine, file, 1)
    assert list(await pinned(engine)) == ["invoice_limits@1"]


async def test_a_rebase_checks_and_publishes_with_tables(engine: Engine, file: ContractFile) -> None:
    [contract] = file.contracts
    await engine.publish_contract(contract, by="vendor")
    await engine.publish_table(limits(), by="ann")
    await in_force(engine, file)
    await engine.publish_contract(replace(contract, version=2), by="vendor")
    await engine.publish_table(limits(2, bound=8), by="ann")
    [dry] = await engine.rebase("invoice", by="ann", dry_run=True)
    assert (dry.status, list(await pinned(engine))) == ("fits", ["invoice_limits@1"])
    [done] = await engine.rebase("invoice", by="ann")
    assert (done.status, list(await pinned(engine))) == ("published", ["invoice_limits@2"])


async def test_a_table_that_is_not_there_is_a_finding(engine: Engine, file: ContractFile) -> None:
    await engine.publish_contract(file.contracts[0], by="vendor")
    [patch] = file.patches
    [found] = await engine.check_patch(patch)
    assert (found.code, found.place) == ("PATCH_TABLE_UNKNOWN", "slots.review.nodes.limits.table")
    await engine.publish_table(limits(name="invoice_limit"), by="ann")
    [found] = await engine.check_patch(patch)
    assert "invoice_limit" in found.hint
    await engine.publish_table(limits(), by="ann")
    assert await engine.check_patch(patch) == ()


async def test_patches_take_tables_of_the_system_and_none_of_others(
    engine: Engine, holdfast_dsn: str, file: ContractFile
) -> None:
    await engine.publish_contract(file.contracts[0], by="vendor")
    async with Engine(holdfast_dsn, org="_system") as system, Engine(holdfast_dsn, org="globex") as globex:
        await globex.publish_table(limits(3), by="gus")
        [found] = await engine.check_patch(file.patches[0])
        assert found.code == "PATCH_TABLE_UNKNOWN"
        await system.publish_table(limits(2), by="vendor")
        await in_force(engine, file)
        assert list(await pinned(engine)) == ["invoice_limits@2"]
        await engine.publish_table(limits(1, bound=9), by="ann")
        await in_force(engine, file)
        assert list(await pinned(engine)) == ["invoice_limits@1"]


# --- attacks ----------------------------------------------------------------------------------------------------------

CHANGES = (
    "org_id = 'globex'",
    "name = 'other'",
    "version = version + 1",
    "content = '{}'",
    "content = jsonb_set(content, '{rows,0,then,signatures}', '9')",
    "hash = repeat('0', 64)",
    "created_by = 'mallory'",
    "reason = 'because'",
    "published_at = now()",
)


def stored(db: Db) -> list[Any]:
    return db.execute("select * from holdfast.decision_tables order by 1, 2, 3").fetchall()


def refused(db: Db, attack: str) -> str | None:
    db.execute("select set_config('holdfast.org', 'default', false)")
    with pytest.raises(psycopg.Error) as caught:
        db.execute(attack)
    return caught.value.sqlstate


@pytest.mark.parametrize("who", ATTACKERS)
async def test_no_login_changes_or_deletes_a_published_table(engine: Engine, logins: dict[str, Db], who: str) -> None:
    await engine.publish_table(limits(), by="ann")
    before = stored(logins["owner"])
    attacks = [f"update holdfast.decision_tables set {change}" for change in CHANGES]
    expected = "HF002" if who == "owner" else "42501"  # the others were never granted it
    for attack in (*attacks, "delete from holdfast.decision_tables", "truncate holdfast.decision_tables"):
        assert refused(logins[who], attack) == expected, attack
    assert stored(logins["owner"]) == before


@pytest.mark.parametrize("who", ["tenant", "stranger"])
async def test_only_the_engine_writes_tables(engine: Engine, logins: dict[str, Db], who: str) -> None:
    forged = (
        "insert into holdfast.decision_tables (org_id, name, version, content, hash, created_by, published_at)"
        " values ('default', 'x', 1, '{}', 'x', 'mallory', now())"
    )
    assert refused(logins[who], forged) == "42501"
    with logins["owner"].transaction(force_rollback=True):
        assert logins["owner"].execute(forged).rowcount == 1


async def test_a_login_of_one_organisation_sees_its_own_tables_and_those_of_the_system(
    engine: Engine, logins: dict[str, Db], holdfast_dsn: str
) -> None:
    async with Engine(holdfast_dsn, org="_system") as system, Engine(holdfast_dsn, org="globex") as globex:
        for each in (engine, system, globex):
            await each.publish_table(limits(name=f"of_{each.org.strip('_')}"), by="ann")
    logins["owner"].execute(
        "insert into holdfast.tenant_grants (role_name, org_id) values (%s, 'default')",
        (logins["tenant"].info.user,),
    )
    with logins["tenant"].transaction():
        logins["tenant"].execute("select set_config('holdfast.org', 'default', true)")
        assert [row[1] for row in stored(logins["tenant"])] == ["of_system", "of_default"]
    with logins["tenant"].transaction():
        logins["tenant"].execute("select set_config('holdfast.org', 'globex', true)")
        assert [row[1] for row in stored(logins["tenant"])] == ["of_system"]


async def test_a_table_altered_with_the_guards_switched_off_is_not_taken(
    engine: Engine, logins: dict[str, Db], file: ContractFile
) -> None:
    await engine.publish_contract(file.contracts[0], by="vendor")
    await engine.publish_table(limits(), by="ann")
    owner = logins["owner"]
    with owner.transaction():
        owner.execute("alter table holdfast.decision_tables disable trigger user")
        owner.execute(f"update holdfast.decision_tables set {CHANGES[4]}")
        owner.execute("alter table holdfast.decision_tables enable trigger user")
    for attempt in (engine.table("invoice_limits"), engine.check_patch(file.patches[0])):
        assert (await refusal(attempt)).code == "WORKFLOW_HASH_MISMATCH"


# --- drafts -----------------------------------------------------------------------------------------------------------


async def test_a_draft_with_a_rule_is_compared_and_simulated(engine: Engine, file: ContractFile) -> None:
    await engine.publish_contract(file.contracts[0], by="ann")
    await engine.publish_table(limits(), by="ann")
    await engine.save_patch_draft(file.patches[0], by="ann")
    found = await engine.contract_difference("invoice", "envelope", "draft")
    assert [slot.name for slot in found.slots] == ["review"]
    small = {"total": 100, "vendor": "v9", "approver": "eva"}
    done = await engine.simulate_document("invoice", small, [CallVerb(verb="submit")], version="draft")
    assert done.state == "active"
