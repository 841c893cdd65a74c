"""Text 4.9: applications report their work in a state; no decision reads it."""

from __future__ import annotations

import psycopg
import pytest
from machine_graphs import send, vendor

from holdfast import Engine
from holdfast.errors import HoldfastError

pytestmark = pytest.mark.anyio


async def test_an_activity_is_written_over_by_entry_name_and_actor(engine: Engine) -> None:
    id = await vendor(engine)
    first = await engine.activity(id, "Internal Review", status="Pending", by="r1", data={"a": 1})
    again = await engine.activity(id, "Internal Review", status="Approved", by="r1")
    other = await engine.activity(id, "Internal Review", status="Pending", by="r2")
    assert (first.id, first.entry, first.state) == (again.id, 0, "draft")
    assert (again.status, again.data) == ("Approved", {"a": 1})
    assert other.id != first.id
    await send(engine, id, "submit")
    later = await engine.activity(id, "Internal Review", status="Pending", by="r1", data=None)
    assert (later.entry, later.state) == (1, "review")
    found = await engine.activities(id)
    assert [(each.entry, each.actor, each.status) for each in found] == [
        (0, "r1", "Approved"), (0, "r2", "Pending"), (1, "r1", "Pending")
    ]  # fmt: skip
    assert await engine.activities(id, after=found[0].id, limit=1) == [found[1]]


async def test_an_entry_is_named_by_its_number_or_there_is_none(engine: Engine) -> None:
    id = await vendor(engine)
    await send(engine, id, "edit", "submit")
    earlier = await engine.activity(id, "Check", status="Done", by="r1", entry=1)
    none = await engine.activity(id, "Check", status="Done", by="r1", entry="none")
    again = await engine.activity(id, "Check", status="Redone", by="r1", entry="none")
    assert (earlier.entry, earlier.state) == (1, "draft")
    assert (none.entry, none.state, none.id) == (None, None, again.id)
    with pytest.raises(HoldfastError, match="ENTRY_UNKNOWN"):
        await engine.activity(id, "Check", status="Done", by="r1", entry=7)
    for wrong in (-1, "1", True, 2**40):
        with pytest.raises(HoldfastError, match="VERSION_INVALID"):
            await engine.activity(id, "Check", status="Done", by="r1", entry=wrong)  # type: ignore[arg-type]


async def test_what_is_over_still_has_its_last_entry(engine: Engine) -> None:
    id = await vendor(engine)
    await send(engine, id, "submit", "approve")
    assert (await engine.activity(id, "Archive", status="Done", by="r1")).state == "done"


async def test_a_frozen_activity_keeps_its_status(engine: Engine) -> None:
    id = await vendor(engine)
    made = await engine.activity(id, "Check", status="Done", by="r1")
    assert (await engine.freeze_activity(id, made.id, by="ben")).frozen
    assert (await engine.freeze_activity(id, made.id, by="ben")).frozen
    with pytest.raises(HoldfastError, match="ACTIVITY_FROZEN") as caught:
        await engine.activity(id, "Check", status="Open", by="r1")
    assert caught.value.http_status == 409
    with pytest.raises(HoldfastError, match="ACTIVITY_FROZEN"):
        await engine.set_activity(id, made.id, status="Open")
    with psycopg.connect(engine.dsn) as db, pytest.raises(psycopg.Error):
        db.execute("update holdfast.activities set status = 'Open'")
    assert not (await engine.unfreeze_activity(id, made.id, by="ben")).frozen
    assert (await engine.set_activity(id, made.id, status="Open", data=[1])).status == "Open"
    events = [(event.type, event.actor, event.detail) for event in await engine.events(id) if "activity" in event.type]
    told = {"activity": made.id, "name": "Check"}
    assert events == [("activity_frozen", "ben", told), ("activity_unfrozen", "ben", told)]


async def test_what_is_not_there_is_not_found(engine: Engine) -> None:
    id, other = await vendor(engine), await vendor(engine, "V-2")
    made = await engine.activity(id, "Check", status="Done", by="r1")
    nowhere = "00000000-0000-0000-0000-000000000001"
    for wrong in (nowhere, "x"):
        with pytest.raises(HoldfastError) as caught:
            await engine.activity(wrong, "Check", status="Done", by="r1")
        assert caught.value.http_status == 404
    with pytest.raises(HoldfastError, match="ACTIVITY_UNKNOWN"):
        await engine.freeze_activity(other, made.id, by="ben")
    with pytest.raises(HoldfastError, match="INSTANCE_UNKNOWN"):
        await engine.for_org("other").activity(id, "Check", status="Done", by="r1")
    with pytest.raises(HoldfastError, match="INSTANCE_UNKNOWN"):
        await engine.for_org("other").activities(id)


async def test_texts_have_limits(engine: Engine) -> None:
    id = await vendor(engine)
    for wrong in ("", "x" * 201, "a\0", "\ud800", 5):
        for name, status, by in ((wrong, "s", "b"), ("n", wrong, "b"), ("n", "s", wrong)):
            with pytest.raises(HoldfastError, match="TEXT_INVALID"):
                await engine.activity(id, name, status=status, by=by)  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match="PAYLOAD"):
        await engine.activity(id, "n", status="s", by="b", data=object())


async def test_no_decision_reads_activities(engine: Engine) -> None:
    id = await vendor(engine)
    before = (await engine.get(id)).version
    await engine.activity(id, "Check", status="Done", by="r1")
    assert (await engine.get(id)).version == before
