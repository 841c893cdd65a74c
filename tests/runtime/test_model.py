"""A model of one flow and the engine on a real database go through the same random story, side by side.

After every rule the database must be where the model is; its rows must replay to its snapshots, and every visit must
have one receipt. `HOLDFAST_PROFILE=long pytest tests/runtime/test_model.py` tells 300 stories of 50 chapters.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from faults.check import TWICE, WITHOUT_RECEIPT, WITHOUT_STEP
from faults.replayed import replay_all
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast import Context, Engine
from holdfast.errors import Conflict
from holdfast.testing import advance, copied_database, failpoint

T = TypeVar("T")
LONG = os.environ.get("HOLDFAST_PROFILE") == "long"
STORIES = settings(
    max_examples=300 if LONG else 12,
    stateful_step_count=50 if LONG else 20,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=list(HealthCheck),
)
DEADLINE = 3600
KEYS = ["a", "b", "c"]
RETRY = {"calls": 50}
EXPIRE = "update holdfast.workers set lease_until = clock_timestamp() where lease_until > clock_timestamp()"
STORY: dict[str, Any] = {
    "name": "story",
    "entry": "work",
    "nodes": [
        {"id": "work", "kind": "task", "handler": "work", "retry": RETRY},
        {"id": "wait", "kind": "wait_event", "wait": {"event": "go", "early": True}, "deadline": float(DEADLINE)},
        {"id": "after", "kind": "task", "handler": "work", "retry": RETRY},
        {"id": "late", "kind": "task", "handler": "work", "retry": RETRY},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "1", "source": "work", "target": "wait"},
        {"id": "2", "source": "wait", "target": "after"},
        {"id": "3", "source": "wait", "target": "late", "on": "timeout"},
        {"id": "4", "source": "after", "target": "end"},
        {"id": "5", "source": "late", "target": "end"},
    ],
}


@dataclass
class Expected:
    """What the model knows of an instance. `place` is where its token stands, or how it ended."""

    id: str
    number: int
    signal: UUID
    place: str = "work"
    sent: bool = False
    deadline: int = 0
    suspended: bool = False
    parked: bool = False  # its deadline came while it was suspended

    @property
    def is_over(self) -> bool:
        return self.place.startswith("over")

    @property
    def is_ready(self) -> bool:
        """A worker would find something to do."""
        return self.place in ("work", "after", "late")

    def run(self, now: int) -> None:
        """As far as a worker gets with it."""
        if self.place == "work":
            self.place, self.deadline = ("after", 0) if self.sent else ("wait", now + DEADLINE)
        if self.place == "wait" and now >= self.deadline:
            if self.suspended:
                self.parked = True
            else:
                self.place = "late"
        if self.place in ("after", "late"):
            self.place = f"over {self.place}"


class Story(RuleBasedStateMachine):
    server = ""  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(asyncio.Runner())
        self.dsn = self._stack.enter_context(copied_database(self.server)).dsn
        self.evidence = self._stack.enter_context(psycopg.connect(self.dsn, autocommit=True))
        self.now = 0
        self.model: dict[str, Expected] = {}

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)

    async def _open(self) -> Engine:
        engine = Engine(self.dsn)
        await engine.open()

        @engine.handler("work")
        async def work(ctx: Context, data: Any) -> Any:
            return {"done": ctx.step}

        return engine

    @initialize()
    def begin(self) -> None:
        self.engine = self.do(self._open())
        self.do(self.engine.publish(STORY))

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.do(self.engine.close())
        self._stack.close()

    # --- what callers do -------------------------------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 1))
    def start(self, key: str, number: int) -> None:
        known = self.model.get(key)
        if known is not None and known.number != number:
            with pytest.raises(Conflict, match="IDEMPOTENCY_KEY_REUSED"):
                self.do(self.engine.start("story", {"n": number}, key=key))
            return
        instance = self.do(self.engine.start("story", {"n": number}, key=key))
        if known is None:
            self.model[key] = Expected(instance.id, number, uuid4())
        else:
            assert instance.id == known.id

    def _send(self, expected: Expected, body: dict[str, Any]) -> None:
        self.do(self.engine.signal(expected.id, "go", body, id=expected.signal))

    @rule(key=st.sampled_from(KEYS))
    def send(self, key: str) -> None:
        """For the first time or again: the id is the same, so it counts once."""
        expected = self.model.get(key)
        if expected is None:
            return
        if not expected.sent and (expected.is_over or expected.suspended or expected.place == "late"):
            with pytest.raises(Conflict):
                self._send(expected, {"go": 1})
            return
        self._send(expected, {"go": 1})
        if not expected.sent:
            expected.sent = True
            if expected.place == "wait":
                expected.place = "after"

    @rule(key=st.sampled_from(KEYS))
    def send_another_body(self, key: str) -> None:
        expected = self.model.get(key)
        if expected is not None and expected.sent:
            with pytest.raises(Conflict, match="SIGNAL_ID_REUSED"):
                self._send(expected, {"go": 2})

    @rule(key=st.sampled_from(KEYS))
    def cancel(self, key: str) -> None:
        expected = self.model.get(key)
        if expected is None:
            return
        if expected.is_over:
            with pytest.raises(Conflict, match="INSTANCE_OVER"):
                self.do(self.engine.cancel(expected.id))
            return
        self.do(self.engine.cancel(expected.id))
        expected.place, expected.suspended = "over cancelled", False

    @rule(key=st.sampled_from(KEYS))
    def suspend(self, key: str) -> None:
        expected = self.model.get(key)
        if expected is not None and expected.place == "wait" and not expected.suspended:
            self.do(self.engine.suspend(expected.id))
            expected.suspended = True

    @rule(key=st.sampled_from(KEYS))
    def resume(self, key: str) -> None:
        expected = self.model.get(key)
        if expected is not None and expected.suspended:
            self.do(self.engine.resume(expected.id))
            expected.suspended = False
            if expected.parked:
                expected.parked, expected.place = False, "late"

    # --- what time, workers and trouble do -------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([60, DEADLINE // 2, DEADLINE + 1]))
    def tick(self, seconds: int) -> None:
        self.do(advance(self.dsn, seconds=seconds))
        self.now += seconds

    @rule()
    def run(self) -> None:
        self.do(self.engine.drain(timeout=60))
        self._ran()

    @rule(
        point=st.sampled_from(["commit.before_commit", "commit.after_commit", "statement.before", "statement.after"]),
        after=st.integers(0, 30),
    )
    def run_and_lose_a_connection(self, point: str, after: int) -> None:
        with failpoint(point, "disconnect", after=after):
            self.do(self.engine.drain(timeout=60))
        self._ran()

    @precondition(lambda self: any(e.is_ready and not e.suspended for e in self.model.values()))
    @rule()
    def take_over_from_a_frozen_worker(self) -> None:
        """One worker is in the middle of a step when its lease ends; another finishes; then the first one answers."""
        rejected = self.do(self._frozen())
        assert rejected >= 1
        self._ran()

    async def _frozen(self) -> int:
        zombie = Engine(self.dsn)
        await zombie.open()
        held, released = asyncio.Event(), asyncio.Event()

        @zombie.handler("work")
        async def work(ctx: Context, data: Any) -> Any:
            held.set()
            await released.wait()
            return {"done": "too late"}

        try:
            async with zombie.worker(lease=60, maintenance=False):
                await asyncio.wait_for(held.wait(), 30)
                self.evidence.execute(EXPIRE)
                await self.engine.drain(timeout=60)
                released.set()
            return zombie.stats().results_rejected
        finally:
            await zombie.close()

    @rule()
    def maintain(self) -> None:
        assert all(upkeep.error is None for upkeep in self.do(self.engine.maintain()))

    def _ran(self) -> None:
        for expected in self.model.values():
            expected.run(self.now)

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_database_is_where_the_model_is(self) -> None:
        found = dict(self.evidence.execute("select id::text, status from holdfast.instances").fetchall())
        assert len(found) == len(self.model)
        for expected in self.model.values():
            status = found[expected.id]
            if expected.is_over:
                assert status == ("cancelled" if expected.place == "over cancelled" else "completed")
                visited = {row[0] for row in self.evidence.execute(
                    "select node from holdfast.steps where instance_id = %s and kind <> 'control'", (expected.id,)
                )}  # fmt: skip
                assert not {"after", "late"} <= visited
                if status == "completed":
                    assert expected.place.removeprefix("over ") in visited
            elif expected.suspended:
                assert status == "suspended"
            else:
                assert status in ("pending", "running")

    @invariant()
    def every_visit_has_one_receipt(self) -> None:
        for question in (TWICE, WITHOUT_RECEIPT, WITHOUT_STEP):
            assert self.evidence.execute(question).fetchall() == []

    @invariant()
    def the_rows_tell_what_the_snapshots_tell(self) -> None:
        with self.evidence.transaction():
            self.evidence.execute("set transaction isolation level repeatable read")
            assert [r for r in replay_all(self.evidence) if r.difference is not None] == []


def test_the_engine_goes_where_its_model_goes(holdfast_server: str) -> None:
    Story.server = holdfast_server
    run_state_machine_as_test(Story, settings=STORIES)
