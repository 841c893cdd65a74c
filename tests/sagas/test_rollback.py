"""Sagas that fail: what is taken back, in which order, and in which state everything ends."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Branch, DoNotRetry, Engine, Flow


pytestmark = pytest.mark.anyio


class Shop:
    """Handlers that write down what they did; `fails` says how often each of them fails before it succeeds."""

    def __init__(self, engine: Engine, *names: str, fails: dict[str, int] | None = None) -> None:
        self.log: list[str] = []
        self.data: dict[str, Any] = {}
        self.fails = dict(fails or {})
        for name in names:
            engine.register(name, self._handler(name))

    def _handler(self, name: str) -> Any:
        async def handle(ctx: Any, data: Any) -> Any:
            self.log.append(name)
            self.data[name] = data
            if self.fails.get(name, 0):
                self.fails[name] -= 1
                raise RuntimeError(f"{name} does not work")
            return {"by": name}

        return handle


async def statuses(engine: Engine, id: str) -> dict[str, str]:
    return {step.name: step.status for step in await engine.steps(id)}


async def test_a_failed_step_is_compensated_first_and_then_everything_backwards(engine: Engine) -> None:
    shop = Shop(engine, "reserve", "release", "ship", "unship", "notify", fails={"ship": 9})
    await engine.publish(
        Flow("order")
        .step("reserve", "reserve").on_failure("release", "release")
        .step("ship", "ship", retries=2).on_failure("unship", "unship")
        .step("notify", "notify")
        .build()
    )  # fmt: skip
    instance = await engine.start("order", {"amount": 5})
    await engine.drain(timeout=20)
    assert shop.log == ["reserve", "ship", "ship", "unship", "release"]
    ended = await engine.get(instance.id)
    assert ended.status == "failed"
    found = await statuses(engine, instance.id)
    assert (found["reserve"], found["ship"]) == ("rolled_back", "rolled_back")
    assert shop.data["release"] == {"input": {"amount": 5}, "output": {"by": "reserve"}}
    assert shop.data["unship"] == {"input": {"by": "reserve"}, "output": None}
    print([(e.type, e.node) for e in await engine.events(instance.id)])
