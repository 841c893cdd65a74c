"""Random machines and policies, and consumers that fail, are silent or come late: nothing is lost or stranded."""

from __future__ import annotations

import os
from collections import defaultdict
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from orders import rows

from holdfast import Engine, Machine
from holdfast.runtime.consumers.events import ConsumerEvent
from holdfast.runtime.ops.dead_letters import LetterFilter
from holdfast.testing import shift

pytestmark = pytest.mark.anyio

OFFICES = 100 if os.environ.get("HOLDFAST_PROFILE") == "long" else 3
REFS = 50 if os.environ.get("HOLDFAST_PROFILE") == "long" else 8
ROUNDS = 6
EVENTS = ("Go", "Back", "Late", "End")
CONSUMERS: dict[str, dict[str, Any]] = {
    "keen": {},
    "failing": {"max_attempts": 3},
    "silent": {"max_attempts": 2, "critical": False},
    "hooked": {"transitions": False, "max_attempts": 2},
}


def random_machine(random: Random) -> Machine:
    """States in a row with a way back, further ways by chance, an end perhaps; hooks and timeouts by chance."""
    names = [f"S{n}" for n in range(random.randrange(2, 5))]
    has_end = random.random() < 0.7
    ways = {(name, event): random.choice(names) for name in names for event in EVENTS[:3] if random.random() < 0.6}
    ways |= {(names[n], "Go"): names[n + 1] for n in range(len(names) - 1)}
    ways[names[-1], "Back"] = names[0]
    if has_end:
        ways[names[-1], "End"] = "End"
    states: list[dict[str, Any]] = [{"name": name, "is_initial": name == "S0"} for name in names]
    blueprint: dict[str, Any] = {
        "name": "thing",
        "environment": "prod",
        "version": 1,
        "states": [*states, *([{"name": "End", "is_final": True}] if has_end else [])],
        "events": [{"code": n, "name": event} for n, event in enumerate(EVENTS)],
        "transitions": [{"from": s, "event": e, "to": t} for (s, e), t in ways.items()],
    }
    takes = {name: [event for state, event in ways if state == name] for name in names}
    rules = [
        {"state": state["name"], "complete": {"success": "Go", "failure": "Back"}, "emit": _hooks(random)}
        for state in blueprint["states"]
        if random.random() < 0.8
    ]
    timeouts = [
        {"state": name, "timeout": "PT1M", "timeout_mode": random.choice(["once", "repeat"])}
        | ({"timeout_event": random.choice(takes[name])} if random.random() < 0.7 else {})
        for name in names
        if takes[name] and random.random() < 0.4
    ]
    return Machine.load(blueprint, {"for": {"definition": "thing"}, "rules": rules, "timeouts": timeouts})


def _hooks(random: Random) -> list[dict[str, Any]]:
    hooks: list[dict[str, Any]] = []
    for n in range(random.randrange(4)):
        hook: dict[str, Any] = {"event": f"HOOK.{n}", "ack": random.choice(["all", "any"])}
        if random.random() < 0.3:
            hook |= {"type": "effect", "deadline": "PT3M"}
        if random.random() < 0.7:
            hook["order"] = random.randrange(1, 4)
        hooks.append(hook)
    return hooks


class Office:
    """One machine with its instances, and what its consumers have been sent."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self.engine = engine
        self.random = random
        self.refs = [f"T-{n}" for n in range(REFS)]
        self.bodies: dict[tuple[str, str], bytes] = {}
        self.order: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    async def open(self) -> None:
        await self.engine.import_machine(random_machine(self.random))
        for name, settings in CONSUMERS.items():
            await self.engine.register_consumer("prod", name, **settings)

    async def one_round(self) -> None:
        for ref in self.refs:
            await self.trigger(ref)
        for name in CONSUMERS:
            for event in await self.take(name):
                await self.answer(name, event)
        shift(self.engine.dsn, timedelta(seconds=self.random.choice([5, 45, 70, 250])))
        await self.engine.drain(timeout=60)

    async def trigger(self, ref: str) -> None:
        held = rows(self.engine.dsn, "select count(*) from holdfast.instances where business_key = %s", ref) == [(1,)]
        before = await self.engine.machine("prod", "thing", ref) if held else None
        done = await self.engine.trigger("prod", "thing", ref, self.random.choice(EVENTS), {"n": 1})
        if before is not None and before.blocked_by and before.status == "running":
            assert (done.applied, done.reason) in ((False, "blocked"), (False, "not_applicable"))

    async def take(self, name: str) -> list[ConsumerEvent]:
        events = await self.engine.receive("prod", name, most=1000)
        for event in events:
            known = self.bodies.setdefault((name, event.ack), event.raw)
            assert known == event.raw, "another body under the same handle"
            if event.attempt == 1:
                self.order[name, event.external_ref].append(event.lifecycle)
        return events

    async def answer(self, name: str, event: ConsumerEvent) -> None:
        luck = self.random.random()
        if name == "silent" and luck < 0.7:
            return
        if name in ("failing", "hooked") and luck < 0.3:
            await self.engine.ack("prod", name, event.ack, "failed", message="by chance")
        elif luck < 0.4:
            await self.engine.ack("prod", name, event.ack, "delivered")
        else:
            verdict = self.random.choice(["success", "success", "failure"]) if event.type == "gate" else None
            await self.engine.ack("prod", name, event.ack, "processed", verdict=verdict)

    async def heal(self) -> None:
        """All consumers work again, and what failed is sent again, until nothing is open."""
        for _ in range(200):
            for name in CONSUMERS:
                for event in await self.take(name):
                    await self.engine.ack("prod", name, event.ack, "processed")
            await self.engine.replay_dead_letters(filter=LetterFilter(source="ack"), by="ann", reason="healed")
            if rows(self.engine.dsn, "select count(*) from holdfast.ack_consumers where closed_at is null") == [(0,)]:
                return
            shift(self.engine.dsn, timedelta(seconds=41))
        stranded = rows(
            self.engine.dsn,
            "select d.status, d.attempts, d.most, d.next_due, a.kind, a.code, i.status from holdfast.ack_consumers d"
            " join holdfast.acks a on a.instance_id = d.instance_id and a.id = d.ack_id"
            " join holdfast.instances i on i.id = d.instance_id where d.closed_at is null",
        )
        raise AssertionError(f"stranded: {stranded[:10]}")

    async def check(self) -> None:
        for lifecycles in self.order.values():
            assert lifecycles == sorted(lifecycles), "a later fact was sent before an earlier one"
        completed = rows(
            self.engine.dsn,
            "select instance_id, step_id, count(*) from holdfast.acks where kind = 'complete' group by 1, 2"
            " having count(*) > 1",
        )
        assert completed == [], "more than one completion of an entry"
        for (id,) in rows(self.engine.dsn, "select id from holdfast.instances"):
            assert (await self.engine.rebuild(id, dry_run=True)).differences == []
        for ref in self.refs:
            stands = await self.engine.machine("prod", "thing", ref)
            assert (stands.open_acks, stands.blocked_by) == (0, [])
            assert stands.status in ("running", "completed")


@pytest.mark.parametrize("seed", range(OFFICES))
async def test_nothing_is_lost_passed_or_stranded(engine: Engine, seed: int) -> None:
    office = Office(engine, Random(seed))
    await office.open()
    for _ in range(ROUNDS):
        await office.one_round()
    await office.heal()
    await office.check()
