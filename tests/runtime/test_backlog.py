"""How much waits, as every worker tells it to Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from holdfast import DoNotRetry, Engine, Flow
from holdfast.runtime.telemetry import backlog
from holdfast.runtime.telemetry.backlog import Backlog
from holdfast.store.pg.session import Disconnected, Session
from running import until

pytestmark = pytest.mark.anyio

TELL: dict[str, Any] = {
    "name": "told",
    "entry": "tell",
    "nodes": [{"id": "tell", "kind": "effect", "handler": "nobody"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "1", "source": "tell", "target": "end"}],
}


async def refuse(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("no")


@pytest.fixture
async def shop(engine: Engine) -> Engine:
    engine.register("refuse", refuse)
    await engine.publish(Flow("lost", dlq=True).step("step", "refuse").build())
    await engine.publish(TELL)
    return engine


@pytest.fixture
async def waiting(holdfast_dsn: str) -> AsyncIterator[Backlog]:
    session = await Session.open(holdfast_dsn)

    async def same() -> Session:
        return session

    yield Backlog(same)
    await session.close()


async def looked(waiting: Backlog) -> tuple[int, int, int]:
    await waiting.look()
    assert waiting.waiting is not None
    return waiting.waiting[:3]


async def test_every_kind_is_counted(shop: Engine, waiting: Backlog) -> None:
    assert await looked(waiting) == (0, 0, 0)
    await shop.start_many("lost", [{}] * 3)
    await shop.start_many("told", [{}] * 2)
    assert await looked(waiting) == (5, 0, 0)
    await shop.drain()
    assert await looked(waiting) == (0, 2, 3)
    [letter, *_] = await shop.dead_letters()
    await shop.requeue(letter.id, by="ann")
    assert await looked(waiting) == (0, 2, 2)


async def test_no_more_than_so_many_are_counted(
    shop: Engine, waiting: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MOST", 2)
    await shop.start_many("lost", [{}] * 3)
    assert await looked(waiting) == (2, 0, 0)


async def test_a_worker_looks_by_itself(shop: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backlog.__init__, "__defaults__", (0.05,))
    await shop.start_many("lost", [{}] * 3)
    async with shop.worker():
        await until(lambda: shop.stats().dead_letters_open == 3)
        assert shop.stats().signals_queued == 0


async def test_instances_that_stand_still_are_counted(shop: Engine, waiting: Backlog) -> None:
    paused, _, _ = await shop.start_many("lost", [{}] * 3)
    await shop.suspend(paused.id, by="ann")
    await shop.drain()
    await waiting.look()
    assert waiting.waiting is not None
    assert (waiting.waiting.suspended, waiting.waiting.dlq) == (1, 2)


async def test_a_process_without_a_worker_looks_when_it_is_asked(
    engine: Engine, shop: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.start_many("lost", [{}] * 3)
    await shop.drain()
    before = shop.stats()
    assert (before.dead_letters_open, before.signals_queued, before.lease_seconds_left) == (None, None, None)
    await shop.look_at_backlog()
    assert (shop.stats().dead_letters_open, shop.stats().instances_in_dlq, shop.stats().steps_unserved) == (3, 3, 0)
    monkeypatch.setattr(backlog, "count_backlog", _must_not_ask)
    await shop.look_at_backlog()  # just done


async def test_what_could_not_be_seen_is_not_known(waiting: Backlog, monkeypatch: pytest.MonkeyPatch) -> None:
    await waiting.refresh()
    assert waiting.waiting is not None
    monkeypatch.setattr(waiting, "_looked_at", None)
    monkeypatch.setattr(backlog, "count_backlog", _cut_off)
    await waiting.refresh()
    assert (waiting.waiting, waiting.unserved) == (None, None)


async def _must_not_ask(*_: object) -> NoReturn:
    raise AssertionError("that was looked at a moment ago")


async def _cut_off(*_: object) -> NoReturn:
    raise Disconnected("the server is away")
