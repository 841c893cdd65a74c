"""The short way of a plain decision leaves exactly the rows of the long way, and refuses what the long way refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from store_batches import ME, OTHER, batch, commit, new_id, opened, read_now, refused

from holdfast.core.decide import decide
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import Actor, Signal, Started, WorkDone
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import load_graph
from holdfast.store.commit.batch import Batch, writes
from holdfast.store.commit.rows import Entry, NewInstance
from holdfast.store.pg.session import Session
from holdfast.store.pg.statements import LONELY, SQL, base_name
from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

TABLES = ("instances", "steps", "step_receipts", "work", "signals", "timers", "effects", "events")
RAW = b'{"n": 1}'


def program(data: str = "value", timeout: float | None = 30.0) -> Program:
    nodes: list[dict[str, Any]] = [
        {"id": "a", "kind": "task", "handler": "work"},
        {"id": "b", "kind": "task", "handler": "work", "timeout": timeout, "priority": 80},
        {"id": "end", "kind": "end"},
    ]
    edges = [{"id": "a>b", "source": "a", "target": "b"}, {"id": "b>end", "source": "b", "target": "end"}]
    graph = {"name": "plain", "entry": "a", "nodes": nodes, "edges": edges, "policy": {"data": data}}
    return link(compile_graph(load_graph(graph)), b"\x33" * 16)


@pytest.fixture(autouse=True, params=["values", "columns"])
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row is written as values; here also as columns of one, which is how more of them are written."""
    if request.param == "columns":
        for name in LONELY:
            monkeypatch.setattr(SQL.all[name], "is_lonely", False)


class Life:
    """One instance from its start to its end, each decision committed the short way or the long way."""

    def __init__(self, session: Session, of: Program, *, plain: bool) -> None:
        self.session = session
        self.program = of
        self.plain = plain
        self.new = NewInstance(RAW, "customer-7", b'{"vip": true}', "ann")
        data = RAW
        self.instance = Instance(
            ID, "acme", of.definition, "plain", 1, 0, InstanceStatus.PENDING, EMPTY, data, trace="00-1-1-01"
        )

    def decide(self, signal: Signal, now: int, **facts: Any) -> Decision:
        decision = decide(self.program, self.instance, signal, Facts(now, **facts))
        assert decision.plain
        return decision if self.plain else msgspec.structs.replace(decision, plain="")

    async def begin(self, now: int) -> None:
        decision = self.decide(Started(RAW), now, actor=Actor("ann"))
        await commit(self.session, batch(now, Entry(self.instance, [decision], self.new)))
        self.instance = decision.instance

    def next(self, now: int, raw: bytes = RAW) -> Decision:
        token = self.instance.state.tokens["0"]
        return self.decide(WorkDone("0", token.step, token.fence, raw), now)

    async def go_on(self, now: int, raw: bytes = RAW) -> None:
        decision = self.next(now, raw)
        await commit(self.session, batch(now, Entry(self.instance, [decision])))
        self.instance = decision.instance


ID = new_id()


def snapshot(dsn: str) -> dict[str, list[Any]]:
    with psycopg.connect(dsn) as db:
        # `ready_at`: since when work waits. The plain way leaves it out: what is leased as it is made never waited.
        return {
            t: db.execute(f"select to_jsonb(x) - 'ready_at' from holdfast.{t} x order by 1").fetchall() for t in TABLES
        }


@pytest.fixture
def twins(holdfast_server: str) -> Iterator[tuple[str, str]]:
    with copied_database(holdfast_server) as one, copied_database(holdfast_server) as other:
        yield one.dsn, other.dsn


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    async with opened(holdfast_dsn) as session:
        yield session


@pytest.mark.parametrize("data", ["value", "context"])
async def test_both_ways_leave_the_same_rows(twins: tuple[str, str], data: str) -> None:
    outputs = [b'{"m": 2}', b'{"n": 3, "deep": {"k": [1, null]}}']
    of = program(data)
    async with opened(twins[0]) as short, opened(twins[1]) as long:
        now = await read_now(short)
        lives = Life(short, of, plain=True), Life(long, of, plain=False)
        for moment, act in enumerate([None, *outputs]):
            for life in lives:
                await (life.begin(now) if act is None else life.go_on(now + moment * 1000, act))
            stored, expected = (snapshot(dsn) for dsn in twins)
            assert stored == expected
            assert len(stored["steps"]) == moment + 1
    assert stored["instances"][0][0]["status"] == "completed"
    assert stored["work"] == []


async def test_the_short_way_is_one_statement(session: Session) -> None:
    """And one that counts it, as every commit has."""

    def used() -> list[str]:
        return [base_name(q.name.decode()) for q in writes(batch(now, Entry(life.instance, [life.next(now)])))]

    life, now = Life(session, program(), plain=True), await read_now(session)
    await life.begin(now)
    assert used() == ["advance_steps", "insert_statistics"]
    await life.go_on(now)
    assert used() == ["finish_instances", "insert_statistics"]


async def test_a_step_that_is_not_leased_here_goes_the_long_way(session: Session, holdfast_dsn: str) -> None:
    life, now = Life(session, program(), plain=True), await read_now(session)
    await life.begin(now)
    await commit(session, batch(now, Entry(life.instance, [life.next(now)]), leases=lambda _: False))
    [[work]] = snapshot(holdfast_dsn)["work"]
    assert (work["worker"], work["fence"], work["queue"]) == (None, 2, "work")


def _by_another(of: Batch) -> Batch:
    of.worker = OTHER
    return of


BREAKS = {
    "another version": "update holdfast.instances set version = version + 1",
    "another fence": "update holdfast.work set fence = fence + 1",
    "another worker": "update holdfast.work set worker = '00000000-0000-0000-0000-000000000001'",
    "work that is gone": "delete from holdfast.work",
    "a step that is over": "update holdfast.steps set status = 'failed', closed_at = created_at, closed_version = 1"
    " where closed_at is null",
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("what", BREAKS)
async def test_guards_hold(session: Session, holdfast_dsn: str, what: str, last: bool) -> None:
    life, now = Life(session, program(), plain=True), await read_now(session)
    await life.begin(now)
    if last:
        await life.go_on(now)
    with psycopg.connect(holdfast_dsn) as db:
        db.execute(BREAKS[what].encode())
    before = snapshot(holdfast_dsn)
    statement = "finish_instances" if last else "advance_steps"
    await refused(session, batch(now, Entry(life.instance, [life.next(now)])), "HF001", statement)
    assert snapshot(holdfast_dsn) == before


async def test_a_visit_has_one_receipt(session: Session, holdfast_dsn: str) -> None:
    life, now = Life(session, program(), plain=True), await read_now(session)
    await life.begin(now)
    step = life.next(now).opened[0]
    with psycopg.connect(holdfast_dsn) as db:
        db.execute(
            "insert into holdfast.step_receipts"
            " (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)"
            " values (%s, %s, %s, 'forward', 0, 'acme', %s, %s, now())",
            (ID.hex(), ID[15], step.token, step.key, step.id.hex()),
        )
    await refused(session, batch(now, Entry(life.instance, [life.next(now)])), "23505", "advance_steps")


async def test_the_holder_is_named_in_the_batch(session: Session) -> None:
    life, now = Life(session, program(), plain=True), await read_now(session)
    await life.begin(now)
    await refused(session, _by_another(batch(now, Entry(life.instance, [life.next(now)]))), "HF001", "advance_steps")
    assert batch(now).worker == ME
