"""Text 3.5 A: an instance that stands still is reported, once over all engines, and later and later."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from machine_graphs import check_of, close_acks, consumer, open_ack, send, vendor, watch

from holdfast import Engine
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.store.notices import Notice
from holdfast.testing import advance

pytestmark = pytest.mark.anyio


async def stale(engine: Engine) -> list[Notice]:
    await engine.drain(timeout=30)
    return (await engine.notices(code="DEFAULT_STATE_STALE")).items


async def test_a_rest_is_reported_once_it_has_lasted(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    await advance(engine, seconds=299)
    assert await stale(engine) == []
    await advance(engine, seconds=2)
    [notice] = await stale(engine)
    assert (notice.kind, notice.consumer, notice.instance_id) == ("overdue", None, id)


async def test_a_notice_has_the_nine_fields_of_the_text_for_each_consumer(engine: Engine) -> None:
    id = await vendor(engine, "V-17")
    await send(engine, id, "submit")
    consumer(engine.dsn, "billing")
    consumer(engine.dsn, "ledger", definitions=["vendor", "loan"])
    consumer(engine.dsn, "loans", definitions=["loan"])
    consumer(engine.dsn, "tests", environment="test")
    consumer(engine.dsn, "hooks", takes_transitions=False)
    consumer(engine.dsn, "others", org_id="others")
    consumer(engine.dsn, "gone", removed_at=datetime.now(UTC))
    watch(engine.dsn, id, 300)
    await advance(engine, seconds=310)
    found = await stale(engine)
    assert {notice.consumer for notice in found} == {"billing", "ledger"}
    detail: dict[str, Any] = found[0].detail
    entry = (await engine.lifecycle(id)).entries[-1]
    assert {name: detail[name] for name in detail if name not in ("consumer_id", "stale_seconds")} == {
        "instance_id": id, "instance_guid": id, "external_ref": "V-17", "definition_version": 1,
        "current_state_id": "review", "state_name": "review", "lifecycle_id": entry.id,
        "environment": "prod", "definition": "vendor",
    }  # fmt: skip
    assert 309 <= detail["stale_seconds"] <= 340
    with psycopg.connect(engine.dsn) as db:
        [(consumer_id,)] = db.execute(
            "select id from holdfast.consumers where name = %s", [found[0].consumer]
        ).fetchall()
    assert detail["consumer_id"] == str(consumer_id)


async def test_each_further_notice_waits_twice_as_long_up_to_a_day(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 3600)
    waits = []
    await advance(engine, hours=1, seconds=1)
    for number in range(1, 9):
        assert len(await stale(engine)) == number
        found = check_of(engine.dsn, id)
        assert found is not None
        with psycopg.connect(engine.dsn) as db:
            [(left,)] = db.execute("select %s - holdfast.clock()", [found[2]]).fetchall()
        waits.append(round(left / timedelta(hours=1)))
        await advance(engine, seconds=left.total_seconds() + 1)
    assert waits == [2, 4, 8, 16, 24, 24, 24, 24]


async def test_a_time_above_a_day_stays_as_long(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 3 * 86_400)
    await advance(engine, days=3, seconds=1)
    assert len(await stale(engine)) == 1
    await advance(engine, days=2)
    assert len(await stale(engine)) == 1
    await advance(engine, days=1, seconds=1)
    assert len(await stale(engine)) == 2


async def test_a_transition_begins_anew_and_writes_nothing(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    before = check_of(engine.dsn, id)
    await advance(engine, seconds=200)
    await send(engine, id, "submit")
    assert check_of(engine.dsn, id) == before
    await advance(engine, seconds=150)
    assert await stale(engine) == []
    await advance(engine, seconds=151)
    assert len(await stale(engine)) == 1
    await send(engine, id, "reject")
    await advance(engine, seconds=601)  # the next look about `review` finds `draft`
    assert [notice.detail["state_name"] for notice in await stale(engine)] == ["draft", "review"]
    found = check_of(engine.dsn, id)
    assert found is not None
    assert found[0] == 1


async def test_a_self_loop_begins_anew(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    await advance(engine, seconds=200)
    await send(engine, id, "edit")
    await advance(engine, seconds=200)
    assert await stale(engine) == []


async def test_nothing_is_reported_while_an_ack_is_open(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    open_ack(engine.dsn, id)
    await advance(engine, seconds=900)
    assert await stale(engine) == []
    close_acks(engine.dsn)
    await advance(engine, seconds=301)
    assert len(await stale(engine)) == 1


async def test_nothing_is_reported_in_a_state_with_a_timeout_and_an_event(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    await send(engine, id, "submit", "wait")
    await advance(engine, seconds=900)
    assert await stale(engine) == []
    await send(engine, id, "late")
    await advance(engine, seconds=601)
    assert len(await stale(engine)) == 1


async def test_nothing_is_reported_of_what_is_suspended(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    await engine.suspend(id, by="ann")
    await advance(engine, seconds=900)
    assert await stale(engine) == []
    await engine.resume(id, by="ann")
    await advance(engine, seconds=301)
    assert len(await stale(engine)) == 1


async def test_what_is_over_is_not_looked_at_again(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    await send(engine, id, "submit", "approve")
    await advance(engine, seconds=900)
    assert await stale(engine) == []
    assert check_of(engine.dsn, id) is None


async def test_three_engines_report_a_rest_once(engine: Engine) -> None:
    ids = [await vendor(engine, f"V-{n}") for n in range(40)]
    for id in ids:
        watch(engine.dsn, id, 300)
    await advance(engine, seconds=301)
    async with Engine(engine.dsn) as second, Engine(engine.dsn) as third:
        await asyncio.gather(*(each.drain(timeout=30) for each in (engine, second, third)))
    found = (await engine.notices(code="DEFAULT_STATE_STALE", limit=200)).items
    assert sorted(notice.instance_id or "" for notice in found) == sorted(ids)


async def test_a_failing_look_is_reported_and_harms_no_work(engine: Engine) -> None:
    id = await vendor(engine)
    watch(engine.dsn, id, 300)
    with psycopg.connect(engine.dsn) as db:
        db.execute("alter table holdfast.stale_checks add constraint broken check (told < 1)")
    await advance(engine, seconds=301)
    await engine.drain(timeout=30)
    [error] = (await engine.notices(kind="error")).items
    assert (error.code, error.detail) == ("MONITOR_ERROR", {"loop": "staleness", "sqlstate": "23514"})
    await send(engine, id, "submit")
    assert (await engine.notices(code="DEFAULT_STATE_STALE")).items == []


def test_the_time_is_a_setting() -> None:
    assert Settings.from_environment({}).stale_after is None
    assert Settings.from_environment({"HOLDFAST_STALE_AFTER": "3600"}).stale_after == 3600
    for wrong in ("0", "-1", "long"):
        with pytest.raises(HoldfastError):
            Settings.from_environment({"HOLDFAST_STALE_AFTER": wrong})
