"""A flow run like a function: the result comes back, and a failure says which step it was."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Context, DoNotRetry, Engine, Flow, SyncEngine
from holdfast.errors import Conflict, InstanceFailed

pytestmark = pytest.mark.anyio


async def reserve(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "reserved": True}


async def release(ctx: Context, undo: dict[str, Any]) -> None:
    pass


def ship(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    if data["country"] == "Atlantis":
        raise DoNotRetry("No courier goes there.")
    return {"parcel": f"P-{data['number']}"}


PARCEL = Flow("parcel").step("reserve", reserve, undo=release).step("ship", ship).build()


async def test_the_result_comes_back(engine: Engine) -> None:
    await engine.publish(PARCEL)
    async with engine.worker():
        assert await engine.run("parcel", {"number": 17, "country": "Norway"}, timeout=30) == {"parcel": "P-17"}


async def test_the_same_key_gives_the_result_of_the_first_run(engine: Engine) -> None:
    await engine.publish(PARCEL)
    async with engine.worker():
        order = {"number": 17, "country": "Norway"}
        assert await engine.run("parcel", order, key="order-17", timeout=30) == {"parcel": "P-17"}
        assert await engine.run("parcel", order, key="order-17", timeout=30) == {"parcel": "P-17"}
        with pytest.raises(Conflict):
            await engine.run("parcel", {**order, "number": 18}, key="order-17", timeout=30)
    assert len((await engine.list(flow="parcel")).items) == 1


async def test_a_failure_names_the_step_and_its_error(engine: Engine) -> None:
    await engine.publish(PARCEL)
    async with engine.worker():
        with pytest.raises(InstanceFailed) as raised:
            await engine.run("parcel", {"number": 18, "country": "Atlantis"}, timeout=30)
    failure = raised.value
    assert (failure.step, failure.error["code"]) == ("ship", "DoNotRetry")
    assert failure.instance.status == "failed"
    assert "step 'ship' failed with DoNotRetry: No courier goes there." in failure.message


async def test_an_end_without_a_failed_step_says_why(engine: Engine) -> None:
    await engine.publish(Flow("question").human("ask").build())
    asked = await engine.start("question", key="question-1")
    async with engine.worker():
        await engine.settle(asked.id, timeout=30)
        await engine.cancel(asked.id, reason="not needed any more", by="ben")
        with pytest.raises(InstanceFailed, match=r"is cancelled: not needed any more\.") as raised:
            await engine.run("question", key="question-1", timeout=30)
    assert (raised.value.step, raised.value.error) == (None, None)


async def test_a_timeout_leaves_the_instance_running(engine: Engine) -> None:
    await engine.publish(Flow("question").human("ask").build())
    async with engine.worker():
        with pytest.raises(TimeoutError, match="still"):
            await engine.run("question", key="question-1", timeout=0.2)
    [instance] = (await engine.list(flow="question")).items
    assert instance.completed_at is None


def test_without_an_event_loop_it_is_the_same(holdfast_dsn: str) -> None:
    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(PARCEL)
        with engine.worker():
            assert engine.run("parcel", {"number": 17, "country": "Norway"}, timeout=30) == {"parcel": "P-17"}
