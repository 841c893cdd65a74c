"""Text 3.3: notices are stored, listed, followed and handed to subscribers, and hurt nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast import Engine
from holdfast.core.model.timestamps import from_datetime, seconds
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.store.notices import KIND_OF, NewNotice, Notice, first_id, tell_notices
from holdfast.store.pg.session import BEGIN, COMMIT, Session
from holdfast.store.pg.statements import SQL, Query

pytestmark = pytest.mark.anyio

TABLE = {
    "ACK_RETRY": "warn", "ACK_SUSPEND": "warn", "ACK_FAIL": "warn", "STATE_STALE": "overdue",
    "DEFAULT_STATE_STALE": "overdue", "MONITOR_ERROR": "error", "EVENT_HANDLER_ERROR": "error",
    "TRIGGER_ERROR": "error",
}  # fmt: skip


def new(message: str, code: str = "ACK_RETRY", org: str = "default", **about: str) -> NewNotice:
    return NewNotice(org=org, code=code, message=message, **about)  # type: ignore[arg-type]


async def tell(engine: Engine, *notices: NewNotice) -> None:
    session = await Session.open(engine.dsn)
    try:
        await tell_notices(session, notices)
    finally:
        await session.close()


def messages(found: list[Notice]) -> list[str]:
    return [notice.message for notice in found]


def test_every_code_of_the_text_has_its_kind() -> None:
    assert KIND_OF.items() >= TABLE.items()


async def test_pages_are_newest_first_and_filtered(engine: Engine) -> None:
    for n in range(6):
        await tell(engine, new(f"retry {n}", consumer="ledger"), new(f"error {n}", "TRIGGER_ERROR"))
    page = await engine.notices(limit=5)
    assert len(page.items) == 5
    assert page.next is not None
    rest = await engine.notices(limit=50, after=page.next)
    assert (len(rest.items), rest.next) == (7, None)
    ids = [notice.id for notice in (*page.items, *rest.items)]
    assert ids == sorted(ids, reverse=True)
    assert messages((await engine.notices(code="TRIGGER_ERROR")).items) == [f"error {n}" for n in reversed(range(6))]
    assert len((await engine.notices(kind="warn")).items) == 6
    assert len((await engine.notices(consumer="ledger", limit=4)).items) == 4
    first = await engine.notices(consumer="ledger", limit=4)
    assert len((await engine.notices(consumer="ledger", after=first.next)).items) == 2
    assert (await engine.notices(since=datetime.now(UTC) + timedelta(minutes=1))).items == []
    assert len((await engine.notices(since=datetime.now(UTC) - timedelta(minutes=1))).items) == 12


async def test_the_notices_of_an_instance(engine: Engine) -> None:
    mine, other = UUID(int=1), UUID(int=2)
    await tell(
        engine, *(NewNotice(org="default", code="ACK_FAIL", message=str(id), instance=id.bytes) for id in (mine, other))
    )
    assert messages((await engine.notices(instance=mine)).items) == [str(mine)]
    assert (await engine.notices(instance=mine, code="ACK_RETRY")).items == []


async def test_another_organisation_sees_none(engine: Engine) -> None:
    await tell(engine, new("ours", instance=UUID(int=1).bytes))  # type: ignore[arg-type]
    other = engine.for_org("other")
    assert (await other.notices()).items == []
    assert (await other.notices(instance=UUID(int=1))).items == []


async def test_wrong_filters_are_refused(engine: Engine) -> None:
    with pytest.raises(Refused, match="KIND_UNKNOWN"):
        await engine.notices(kind="loud")
    with pytest.raises(NotFound, match="ID_INVALID"):
        await engine.notices(after="x")
    with pytest.raises(HoldfastError, match="LIMIT_INVALID"):
        await engine.notices(limit=0)
    with pytest.raises(Refused, match="TEXT_INVALID"):
        await engine.notices(code="\0")


async def take(notices: object, number: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(20):
        async for notice in notices:  # type: ignore[attr-defined]
            found.append(notice.message)
            if len(found) == number:
                return found
    raise AssertionError(found)


async def test_a_follower_sees_what_comes_and_what_was_behind_its_place(engine: Engine) -> None:
    await tell(engine, new("old"))
    old = datetime.now(UTC) - timedelta(hours=1)
    following = engine.follow_notices(after=str(UUID(bytes=first_id(from_datetime(old)))))
    assert await take(following, 1) == ["old"]
    [notice] = (await engine.notices()).items
    following = engine.follow_notices(after=notice.id)
    reading = asyncio.create_task(take(following, 2))
    await tell(engine, new("one"))
    await tell(engine, new("two"))
    assert await reading == ["one", "two"]


async def test_a_commit_that_becomes_visible_late_is_not_missed(engine: Engine) -> None:
    """Two commits whose ids are out of order: the earlier id is seen last."""
    slow, quick = await Session.open(engine.dsn), await Session.open(engine.dsn)
    now = from_datetime(datetime.now(UTC))

    def of(moment: int, message: str) -> Query:
        row = first_id(moment)[:15] + b"\1", 1, "default", "ACK_RETRY", "warn", message, None, None, b"{}"
        return SQL.insert_notices.rows([row], now)

    try:
        following = engine.follow_notices(after=str(UUID(bytes=first_id(now - seconds(60)))))
        await slow.run([BEGIN, SQL.use_worker.one(), of(now, "early and late")])
        await quick.once(SQL.use_worker.one(), of(now + seconds(3), "late and early"))
        assert await take(following, 1) == ["late and early"]
        following = engine.follow_notices(after=str(UUID(bytes=first_id(now - seconds(60)))))
        reading = asyncio.create_task(take(following, 2))
        while not reading.done():
            await asyncio.sleep(0)
            if (await engine.notices()).items:
                await slow.run([COMMIT])
                break
        assert sorted(await reading) == ["early and late", "late and early"]
    finally:
        await slow.close()
        await quick.close()


async def test_a_follower_without_a_place_begins_now(engine: Engine) -> None:
    await tell(engine, new("before"))
    following = engine.follow_notices(life=0.3)
    assert [notice.message async for notice in following] == []


async def test_a_follower_selects(engine: Engine) -> None:
    start = str(UUID(bytes=first_id(from_datetime(datetime.now(UTC) - timedelta(seconds=5)))))
    await tell(engine, new("no"), new("yes", "TRIGGER_ERROR"), new("no"))
    assert await take(engine.follow_notices(after=start, code="TRIGGER_ERROR"), 1) == ["yes"]


async def told_of(engine: Engine, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await engine.board.told()


async def test_subscribers_are_called_while_a_worker_runs(engine: Engine) -> None:
    heard: list[str] = []
    only: list[str] = []
    others: list[str] = []

    @engine.on_notice
    async def hear(notice: Notice) -> None:
        heard.append(notice.message)

    @engine.on_notice(codes=("TRIGGER_ERROR",))
    def hear_errors(notice: Notice) -> None:
        only.append(notice.message)

    engine.for_org("other").on_notice(lambda notice: others.append(notice.message))
    await engine.drain(timeout=30)  # from now on
    await tell(engine, new("one"), new("two", "TRIGGER_ERROR"))
    await engine.drain(timeout=30)
    await engine.drain(timeout=30)
    assert sorted(heard) == ["one", "two"]
    assert (only, others) == (["two"], [])


async def test_a_subscriber_that_raises_harms_nobody(engine: Engine) -> None:
    heard: list[str] = []

    @engine.on_notice
    def fall(notice: Notice) -> None:
        raise RuntimeError(notice.message)

    @engine.on_notice
    async def leave(_: Notice) -> None:
        raise asyncio.CancelledError

    @engine.on_notice
    async def hear(notice: Notice) -> None:
        heard.append(notice.message)

    await engine.drain(timeout=30)
    await tell(engine, new("one"))
    await engine.drain(timeout=30)
    await engine.drain(timeout=30)
    assert heard == ["one"]
    assert engine.stats().hook_failures == 2
    assert len((await engine.notices()).items) == 1  # an error about a notice makes none


async def test_an_error_of_a_loop_is_written_once_a_minute(engine: Engine) -> None:
    for n in range(5):
        engine.board.tell_error("MONITOR_ERROR", f"It broke {n}\0.", consumer="ledger", detail={"loop": "deliveries"})
    engine.board.tell_error("TRIGGER_ERROR", "Another", org="other")
    await engine.board.told()
    [notice] = (await engine.notices()).items
    assert (notice.code, notice.kind, notice.message, notice.consumer) == (
        "MONITOR_ERROR",
        "error",
        "It broke 0.",
        "ledger",
    )
    assert notice.detail == {"loop": "deliveries"}
    assert messages((await engine.for_org("other").notices()).items) == ["Another"]
    assert engine.stats().notices == {("MONITOR_ERROR",): 1, ("TRIGGER_ERROR",): 1}


async def test_an_error_that_cannot_be_written_is_only_logged(engine: Engine) -> None:
    engine.board.tell_error("MONITOR_ERROR", "x", detail={"not": object()})
    engine.board.tell_error("", "no code")
    await engine.board.told()
    assert (await engine.notices()).items == []


async def test_codes_that_are_not_known_are_counted_together(engine: Engine) -> None:
    for n in range(50):
        engine.board.count(f"CODE_{n}")
    assert engine.stats().notices == {("OTHER",): 50}
