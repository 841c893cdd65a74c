"""The invariants that only several processes could break, and the page that says which test holds each of them."""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from holdfast import Branch, Context, Engine, Flow
from running import Evidence

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent
COUNTER: dict[str, Any] = {
    "name": "counter",
    "entry": "wait",
    "nodes": [{"id": "wait", "kind": "state"}, {"id": "end", "kind": "end"}],
    "edges": [
        {"id": "again", "source": "wait", "target": "wait", "on": "again"},
        {"id": "over", "source": "wait", "target": "end", "on": "over"},
    ],
}
WRITERS = 4
EACH = 25
RACES = 40


async def test_one_instance_has_one_writer_at_a_time(engine: Engine, evidence: Evidence) -> None:
    await engine.publish(COUNTER)
    instance = await engine.start("counter")
    await engine.drain(timeout=30)

    async def write() -> None:
        async with Engine(engine.dsn) as writer:
            for _ in range(EACH):
                await writer.signal(instance.id, "again")

    await asyncio.gather(*(write() for _ in range(WRITERS)))
    await engine.signal(instance.id, "over")
    changes = WRITERS * EACH
    found = await engine.get(instance.id)
    assert found.status == "completed"
    visits = await engine.steps(instance.id)
    assert Counter(s.name for s in visits)["wait"] == changes + 1
    closed = [s.closed for s in visits if s.name == "wait"]
    assert len(set(closed)) == len(closed)  # nobody's change was made on what another had changed already
    assert evidence.ask("select count(distinct token) from holdfast.step_receipts") == evidence.ask(
        "select count(*) from holdfast.steps"
    )


@pytest.mark.parametrize("mode", ["any", "all"])
async def test_a_join_fires_once_however_its_branches_arrive(mode: str, engine: Engine) -> None:
    """One branch in each process, and both end at the same moment."""
    together: dict[str, asyncio.Barrier] = defaultdict(lambda: asyncio.Barrier(2))

    async def branch(ctx: Context, data: Any) -> str:
        await together[ctx.instance].wait()
        return ctx.step

    fired: Counter[str] = Counter()

    async def behind(ctx: Context, data: Any) -> Any:
        fired[ctx.instance] += 1
        return data

    flow = Flow("race").fork("parts", Branch().step("left", "left"), Branch().step("right", "right"))
    await engine.publish(flow.join("met", mode).step("behind", "behind").build())
    async with Engine(engine.dsn) as other:
        engine.register("left", branch)
        other.register("right", branch)
        engine.register("behind", behind)
        other.register("behind", behind)
        async with engine.worker(), other.worker():
            races = await engine.start_many("race", [{}] * RACES)
            ended = await asyncio.gather(*(engine.wait(race.id, timeout=60) for race in races))
    assert {instance.status for instance in ended} == {"completed"}
    assert fired == Counter({race.id: 1 for race in races})
    for instance in ended:
        steps = await engine.steps(instance.id)
        assert [s.status for s in steps if s.name == "met"] == ["completed"]
        branches = Counter(s.status for s in steps if s.name in ("left", "right"))
        assert branches == ({"completed": 2} if mode == "all" else {"completed": 1, "cancelled": 1})
        assert instance.data["completed"] == branches["completed"]


def test_every_invariant_is_on_the_page_with_tests_that_exist() -> None:
    page = (ROOT / "docs" / "invariants.md").read_text()
    assert re.findall(r"^\| (WF-\d\d) \|", page, re.MULTILINE) == [f"WF-{number:02}" for number in range(1, 17)]
    assert re.findall(r"^\| (MA-\d\d) \|", page, re.MULTILINE) == [f"MA-{number:02}" for number in range(1, 12)]
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert named
    for file, test in named:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{test}"
