"""WF-04: what was published never changes, whoever tries it with raw SQL; drafts do."""

from __future__ import annotations

import psycopg
import pytest
from attackers import ATTACKERS, Db

from holdfast import Engine

pytestmark = pytest.mark.anyio

REFUSED, DENIED, CHECK = "HF002", "42501", "23514"
KINDS = ("envelope", "org_patch", "effective")
CHANGES = {
    "version": "version = version + 40",
    "name": "name = 'document:other'",
    "org": "org_id = 'globex'",
    "kind": "kind = 'saga'",
    "source": """source = '{"contract": "other"}'""",
    "nodes": """nodes = '[{"id": "sys:start", "kind": "end"}]'""",
    "edges": "edges = '[]'",
    "slots": "slots = '[]', patches = '{}'",
    "base": """base_ref = '{"envelope": 7}'""",
    "graph": """compiled = '{"kind": "effective"}'""",
    "graph in part": "compiled = jsonb_set(coalesce(compiled, '{}'), '{config}', '{}')",
    "hash": "hash = repeat('0', 64)",
    "compiler": "compiler_version = '0'",
    "default": "is_default = not is_default",
    "author": "created_by = 'mallory'",
    "moment": "published_at = published_at + interval '1 day'",
    "back to draft": "status = 'draft', published_at = null",
    "out of the archive": "status = case status when 'archived' then 'published' else 'draft' end",
}


def content(db: Db) -> list[tuple[object, ...]]:
    tables = ("definitions", "contract_events", "contract_drafts")
    return [row for table in tables for row in db.execute(f"select * from holdfast.{table} order by 1, 2").fetchall()]


def attacked(db: Db, statement: str, who: str) -> None:
    """A refusal by the guards, a missing right, or rows that are not there for this login: never a change."""
    changed, refused = 0, None
    try:
        with db.transaction():
            db.execute("select set_config('holdfast.org', 'default', true)")
            changed = db.execute(statement).rowcount
    except psycopg.Error as error:
        refused = error.sqlstate
    assert changed == 0, statement
    expected = (REFUSED, CHECK) if who in ("owner", "worker") else (DENIED,)
    # What the worker was never granted is denied before any guard is asked.
    assert refused in (expected if who != "worker" else (*expected, DENIED)), statement


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", ATTACKERS)
async def test_no_column_of_what_was_published_changes(
    published: Engine, logins: dict[str, Db], who: str, kind: str
) -> None:
    before = content(logins["owner"])
    for assignment in CHANGES.values():
        attacked(logins[who], f"update holdfast.definitions set {assignment} where kind = '{kind}'", who)
    assert content(logins["owner"]) == before


@pytest.mark.parametrize("who", ATTACKERS)
async def test_none_of_it_is_deleted(published: Engine, logins: dict[str, Db], who: str) -> None:
    before = content(logins["owner"])
    for table in ("definitions", "contract_events"):
        attacked(logins[who], f"delete from holdfast.{table}", who)
        with pytest.raises(psycopg.Error):
            logins[who].execute(f"truncate holdfast.{table}")
    assert content(logins["owner"]) == before


@pytest.mark.parametrize("who", ATTACKERS)
async def test_what_was_done_stays_written(published: Engine, logins: dict[str, Db], who: str) -> None:
    before = content(logins["owner"])
    for assignment in (
        "actor = 'mallory'",
        "reason = 'because'",
        "version = 9",
        "created_at = now()",
        "action = action",
    ):
        attacked(logins[who], f"update holdfast.contract_events set {assignment}", who)
    assert content(logins["owner"]) == before


@pytest.mark.parametrize("who", ["tenant", "stranger"])
async def test_only_the_engine_writes_drafts(published: Engine, logins: dict[str, Db], who: str) -> None:
    before = content(logins["owner"])
    for statement in (
        "update holdfast.contract_drafts set patch = '{}'",
        "delete from holdfast.contract_drafts",
        "insert into holdfast.contract_drafts (org_id, entity_type, tag, patch, saved_by, saved_at)"
        " values ('default', 'order', 't', '{}', 'mallory', now())",
    ):
        attacked(logins[who], statement, who)
    assert content(logins["owner"]) == before


async def test_the_attacks_would_change_what_is_no_guarded_row(published: Engine, logins: dict[str, Db]) -> None:
    """The statements are sound: on a draft they do what they say."""
    owner = logins["owner"]
    owner.execute(
        "insert into holdfast.definitions (id, org_id, kind, name, version, entity_type, status, created_at)"
        " values (gen_random_uuid(), 'default', 'effective', 'document:spare', 1, 'spare', 'draft', now())"
    )
    for assignment in ("hash = repeat('0', 64)", "nodes = '[]'", "compiled = '{}'", "created_by = 'ann'"):
        assert (
            owner.execute(f"update holdfast.definitions set {assignment} where name = 'document:spare'").rowcount == 1
        )
    assert (await published.patch_draft("invoice")).by == "ann"
