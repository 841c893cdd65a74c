"""How much waits, as every worker tells it to Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import DoNotRetry, Engine, Flow
from holdfast.runtime import backlog
from holdfast.runtime.backlog import Backlog
from holdfast.store.session import Session
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
    return waiting.signals, waiting.effects, waiting.letters


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
