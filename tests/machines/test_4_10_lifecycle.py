"""Text 4.10: the lifecycle of an instance as one document, made by one statement."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from machine_graphs import send, vendor

from holdfast import Engine
from holdfast.errors import HoldfastError
from holdfast.store.pg.session import Session
from holdfast.store.reads import lifecycle
from holdfast.store.reads.lifecycle import MOST_BYTES, read_lifecycle

sys.path.append(str(Path(__file__).parent.parent / "store"))

from store_plans import be_tenant, buffers, measure

pytestmark = pytest.mark.anyio


async def test_the_document_has_instance_entries_and_activities(engine: Engine) -> None:
    id = await vendor(engine, "V-17")
    await engine.activity(id, "Collect", status="Done", by="r1")
    await send(engine, id, "submit", by="ann")
    reviewed = await engine.activity(id, "Review", status="Open", by="r2", data={"page": 1})
    await send(engine, id, "reject", by="ben")
    loose = await engine.activity(id, "Call", status="Done", by="r3", entry="none")
    document = await engine.lifecycle(id)
    now = await engine.get(id)
    about = document.instance
    assert (about.id, about.guid, about.external_ref, about.definition, about.environment) == (
        id,
        id,
        "V-17",
        "vendor",
        "prod",
    )
    assert (about.definition_version, about.blueprint_version, about.status) == (1, 3, "running")
    assert (about.current_state, about.last_event) == ("draft", "reject")
    assert (about.created_at, about.modified_at) == (now.created_at, now.updated_at)
    assert [
        (e.number, e.from_state, e.to_state, e.event, e.event_code, e.actor, e.payload) for e in document.entries
    ] == [
        (0, None, "draft", None, None, "system", None),
        (1, "draft", "review", "submit", 1001, "ann", {"sent": "submit"}),
        (2, "review", "draft", "reject", 1003, "ben", {"sent": "reject"}),
    ]
    steps = await engine.steps(id)
    assert [e.id for e in document.entries] == [step.id for step in steps]
    assert [e.occurred_at for e in document.entries] == [step.created_at for step in steps]
    assert [[a.name for a in e.activities] for e in document.entries] == [["Collect"], ["Review"], []]
    assert document.entries[1].activities == [reviewed]
    assert document.other_activities == [loose]
    assert not document.truncated


async def test_a_self_loop_and_an_end_are_entries(engine: Engine) -> None:
    id = await vendor(engine)
    await send(engine, id, "edit", "edit", "submit", "approve")
    document = await engine.lifecycle(id)
    assert [(e.from_state, e.to_state) for e in document.entries] == [
        (None, "draft"), ("draft", "draft"), ("draft", "draft"), ("draft", "review"), ("review", "done")
    ]  # fmt: skip
    assert (document.instance.status, document.instance.current_state) == ("completed", "done")


async def test_an_activity_whose_entry_is_gone_is_with_the_others(engine: Engine) -> None:
    id = await vendor(engine)
    await engine.activity(id, "Collect", status="Done", by="r1")
    with psycopg.connect(engine.dsn) as db:
        db.execute("set holdfast.maintenance = 'on'")
        db.execute("alter table holdfast.activities disable trigger user")
        db.execute("update holdfast.activities set step_id = gen_random_uuid()")
    document = await engine.lifecycle(id)
    assert [a.name for a in document.other_activities] == ["Collect"]
    assert document.entries[0].activities == []


async def test_a_document_ends_with_its_bytes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    id = await vendor(engine)
    await send(engine, id, *["edit"] * 4)
    for n in range(4):
        await engine.activity(id, f"n{n}", status="Done", by="r1", entry="none", data="x" * 600)
    whole = await engine.lifecycle(id)
    assert (len(whole.entries), len(whole.other_activities), whole.truncated) == (5, 4, False)
    monkeypatch.setattr(lifecycle, "MOST_BYTES", 30)  # of payloads that are 16 each, and 24 as they are stored
    found = await engine.lifecycle(id)
    assert (found.entries, found.other_activities) == (whole.entries[-2:], whole.other_activities[-1:])
    assert found.truncated
    monkeypatch.setattr(lifecycle, "MOST_BYTES", 1_200)
    found = await engine.lifecycle(id)
    assert (found.entries, found.other_activities, found.truncated) == (
        whole.entries,
        whole.other_activities[-2:],
        True,
    )
    monkeypatch.setattr(lifecycle, "MOST_BYTES", 1)
    assert (await engine.lifecycle(id)).entries == whole.entries[-1:], "the latest one is always there"
    assert (await engine.lifecycle(id, last=5)).truncated


async def test_the_last_entries_only(engine: Engine) -> None:
    id = await vendor(engine)
    await send(engine, id, "edit", "edit", "edit")
    document = await engine.lifecycle(id, last=2)
    assert [(e.number, e.event, e.from_state) for e in document.entries] == [(2, "edit", "draft"), (3, "edit", "draft")]
    assert document.truncated
    assert not (await engine.lifecycle(id, last=4)).truncated
    with pytest.raises(HoldfastError, match="LIMIT_INVALID"):
        await engine.lifecycle(id, last=0)


async def test_what_is_not_there_is_not_found(engine: Engine) -> None:
    id = await vendor(engine)
    with pytest.raises(HoldfastError, match="INSTANCE_UNKNOWN"):
        await engine.for_org("other").lifecycle(id)
    with pytest.raises(HoldfastError, match="INSTANCE_UNKNOWN"):
        await engine.lifecycle("00000000-0000-0000-0000-000000000001")


_PARTITIONS = "select relname from pg_class where relkind = 'r' and relname ~ '^steps_[0-9]'"
_GROW = """
    insert into holdfast.steps (instance_id, bucket, run, hop, created_at, id, entity_version, opened_version,
    opened_ordinal,
        org_id, node, behaviour, path, kind, receipt_key, opened_by, cause, input, status, outcome, closed_by,
        closed_version,
        closed_at, closed_ordinal, output)
    select s.instance_id, s.bucket, 0, n, s.created_at + n * interval '1 millisecond', gen_random_uuid(), 0, n + 1, 2,
    s.org_id,
        'draft', 'rest', '0', 'forward', sha256(n::text::bytea), 'ann', 'event', '{}', 'completed', 'edit', 'ann',
        n + 2,
        s.created_at + n * interval '1 millisecond', 1, '{"sent": "edit"}'
    from holdfast.steps s cross join generate_series(1, %(many)s) n
    where s.instance_id = %(id)s and s.hop = 0
"""
_TELL = """
    insert into holdfast.activities (instance_id, bucket, id, org_id, step_id, step_created_at, state, name, actor,
    status,
        created_at, updated_at)
    select s.instance_id, s.bucket, gen_random_uuid(), s.org_id, s.id, s.created_at, 'draft', 'Check', 'r1', 'Done',
        s.created_at, s.created_at
    from holdfast.steps s where s.instance_id = %(id)s and mod(s.hop, 3) = 0
"""


@pytest.mark.parametrize("state", ["never analysed", "analysed when empty", "analysed"])
async def test_ten_times_the_entries_take_at_most_fifteen_times_the_time(engine: Engine, state: str) -> None:
    ids = {many: await vendor(engine, f"V-{many}") for many in (1_000, 10_000)}
    with psycopg.connect(engine.dsn, autocommit=True) as db:
        for table in ("activities", *(row[0] for row in db.execute(_PARTITIONS))):
            db.execute(f"alter table holdfast.{table} set (autovacuum_enabled = off)")
        if state == "analysed when empty":
            db.execute("vacuum analyze")
        for many, id in ids.items():
            db.execute(_GROW, {"many": many, "id": id})
            db.execute(_TELL, {"id": id})
        if state == "analysed":
            db.execute("analyze")
        pages = {many: _pages(db, id) for many, id in ids.items()}
    session = await Session.open(engine.dsn)
    best: dict[int, float] = {}
    try:
        for many in [*ids] * 4:
            began = time.perf_counter()
            document = await read_lifecycle(session, "default", bytes.fromhex(ids[many].replace("-", "")))
            best[many] = min(best.get(many, 1e9), time.perf_counter() - began)
            assert document is not None
            assert len(document.entries) == many + 1
            assert sum(len(e.activities) for e in document.entries) == many // 3 + 1
    finally:
        await session.close()
    assert best[10_000] <= 15 * best[1_000], best
    assert pages[10_000] <= 15 * pages[1_000], pages
    assert datetime.now(UTC) > document.instance.created_at


def _pages(db: psycopg.Connection[Any], id: str) -> int:
    """Count the pages that the lifecycle of an instance reads."""
    with db.transaction(force_rollback=True):
        be_tenant(db, "default")
        plan = measure(db, "read_lifecycle", [id, UUID(id).bytes[15], "default", 100_000, MOST_BYTES])
    db.execute("deallocate all")
    return buffers(plan)
