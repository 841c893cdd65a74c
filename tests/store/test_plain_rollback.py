"""A rollback that goes the short way leaves exactly the rows of the long way, and refuses what the long way refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from store_batches import batch, commit, new_id, opened, read_now, refused

from holdfast import Flow, Undo
from holdfast.core.decide import decide
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import Failure, HistoryRead, Signal, Started, WorkDone, WorkFailed
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.doors.saga.lowering import lower
from holdfast.graph.compile import compile_graph
from holdfast.store.commit import batch as commits
from holdfast.store.commit.batch import Batch, writes
from holdfast.store.commit.history import read_past
from holdfast.store.commit.rows import Entry, NewInstance
from holdfast.store.pg.session import Session
from holdfast.store.pg.statements import LONELY, SQL, base_name
from holdfast.testing import copied_database
from running import until

pytestmark = pytest.mark.anyio

WAITERS = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
TABLES = ("instances", "steps", "step_receipts", "work", "events", "statistics_deltas", "dead_letters", "timers")
TURN = frozenset({"fail", "plan"})
RAW = b'{"n": 1}'
ID = new_id()
FAILED = Failure("CARD_DECLINED", "The card was declined.", {"attempt": "first"})


def saga(*, last_has_one: bool) -> Program:
    flow = (
        Flow("saga")
        .step("reserve", "reserve", undo="release")
        .step("look", "look")
        .step("bill", "bill", undo=Undo("refund", timeout=20))
        .step("ship", "ship", undo="unship" if last_has_one else None)
    )  # fmt: skip
    return link(compile_graph(lower(flow.build())), b"\x33" * 16)


@pytest.fixture(autouse=True, params=["values", "columns"])
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row is written as values; here also as columns of one, which is how more of them are written."""
    if request.param == "columns":
        for name in LONELY:
            monkeypatch.setattr(SQL.all[name], "is_lonely", False)


class Life:
    """One saga from its start to the end of its rollback, each decision committed the short way or the long way."""

    def __init__(self, session: Session, of: Program, *, plain: bool, turns_plainly: bool = True) -> None:
        self.session, self.program = session, of
        self.forgets = frozenset[str]() if turns_plainly else TURN  # how it was decided, as if it had been at length
        self.plain = plain
        self.instance = Instance(ID, "acme", of.definition, "saga", 1, 0, InstanceStatus.PENDING, EMPTY, RAW)

    def decide(self, signal: Signal, now: int, over: Instance | None = None) -> Decision:
        decision = decide(self.program, over or self.instance, signal, Facts(now))
        is_told = self.plain and decision.plain not in self.forgets
        return decision if is_told else msgspec.structs.replace(decision, plain="")

    async def begin(self, now: int) -> None:
        decision = self.decide(Started(RAW), now)
        await commit(self.session, batch(now, Entry(self.instance, [decision], NewInstance(RAW))))
        self.instance = decision.instance

    def done(self, now: int) -> Entry:
        [(path, token)] = self.instance.state.tokens.items()
        return Entry(self.instance, [self.decide(WorkDone(path, token.step, token.fence, b'{"m": 2}'), now)])

    async def failed(self, now: int) -> Entry:
        [(path, token)] = self.instance.state.tokens.items()
        failure = self.decide(WorkFailed(path, token.step, token.fence, FAILED, 1, False, RAW), now)
        entry = Entry(self.instance, [failure])
        past = await read_past(self.session, [entry])
        entry.decisions.append(self.decide(HistoryRead(past[ID]), now, failure.instance))
        return entry

    async def commit(self, entry: Entry, now: int) -> None:
        await commit(self.session, batch(now, entry))
        self.instance = entry.decisions[-1].instance


async def until_it_fails(life: Life, now: int) -> None:
    await life.begin(now)
    for _ in range(1, 4):
        await life.commit(life.done(now), now)


def names(of: Batch) -> list[str]:
    used = [base_name(query.name.decode()) for query in writes(of)]
    return [name for name in used if name != "insert_statistics"]


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


@pytest.mark.parametrize("turns_plainly", [True, False])
@pytest.mark.parametrize("last_has_one", [True, False])
async def test_both_ways_leave_the_same_rows(
    twins: tuple[str, str], monkeypatch: pytest.MonkeyPatch, last_has_one: bool, turns_plainly: bool
) -> None:
    of = saga(last_has_one=last_has_one)
    plain = commits.is_plain_rollback
    async with opened(twins[0]) as short, opened(twins[1]) as long:
        now = await read_now(short)
        lives = Life(short, of, plain=True, turns_plainly=turns_plainly), Life(long, of, plain=False)

        def short_only(before: Instance, *rest: Any) -> bool:
            return before is lives[0].instance and plain(before, *rest)

        monkeypatch.setattr(commits, "is_plain_rollback", short_only)
        for life in lives:
            await until_it_fails(life, now)
        ways: list[list[str]] = []
        for moment in range(4 if last_has_one else 3):
            at = now + 1000 * (moment + 1)
            for life in lives:
                entry = life.done(at) if moment else await life.failed(at)
                ways.append(names(batch(at, entry)))
                await life.commit(entry, at)
            assert snapshot(twins[0]) == snapshot(twins[1])
    stored = snapshot(twins[0])
    middle = [["undo_steps"]] * (2 if last_has_one else 1)
    assert ways[::2] == [["begin_rollbacks"], *middle, ["end_rollbacks"]]
    assert all(len(way) > 4 for way in ways[1::2]), "the other one went the long way"
    assert stored["instances"][0][0]["status"] == "failed"
    assert stored["work"] == []
    steps: list[dict[str, Any]] = [step for [step] in stored["steps"]]
    assert {step["status"] for step in steps if step["kind"] == "forward"} == {"rolled_back"}


BREAKS = {
    "another version": "update holdfast.instances set version = version + 1",
    "another fence": "update holdfast.work set fence = fence + 1",
    "another worker": "update holdfast.work set worker = '00000000-0000-0000-0000-000000000001'",
    "work that is gone": "delete from holdfast.work",
    "a step that is over": "update holdfast.steps set status = 'failed', closed_at = created_at, closed_version = 1"
    " where closed_at is null",
}


@pytest.mark.parametrize("what", BREAKS)
async def test_guards_of_the_turn_hold(holdfast_dsn: str, what: str) -> None:
    async with opened(holdfast_dsn) as session:
        life, now = Life(session, saga(last_has_one=True), plain=True), await read_now(session)
        await until_it_fails(life, now)
        entry = await life.failed(now)
        with psycopg.connect(holdfast_dsn) as db:
            db.execute(BREAKS[what].encode())
        before = snapshot(holdfast_dsn)
        await refused(session, batch(now, entry), "HF001", "begin_rollbacks")
        assert snapshot(holdfast_dsn) == before


async def test_a_compensation_has_one_receipt(holdfast_dsn: str) -> None:
    async with opened(holdfast_dsn) as session:
        life, now = Life(session, saga(last_has_one=True), plain=True), await read_now(session)
        await until_it_fails(life, now)
        entry = await life.failed(now)
        planned = entry.decisions[-1].opened[1]
        with psycopg.connect(holdfast_dsn) as db:
            db.execute(
                "insert into holdfast.step_receipts"
                " (instance_id, bucket, token, kind, run, org_id, key, step_id, created_at)"
                " values (%s, %s, %s, 'compensate', 0, 'acme', %s, %s, now())",
                (ID.hex(), ID[15], planned.token, planned.key, planned.id.hex()),
            )
        await refused(session, batch(now, entry), "23505", "begin_rollbacks")


async def test_a_compensation_that_is_not_leased_here_goes_the_long_way(holdfast_dsn: str) -> None:
    async with opened(holdfast_dsn) as session:
        life, now = Life(session, saga(last_has_one=True), plain=True), await read_now(session)
        await until_it_fails(life, now)
        await commit(session, batch(now, await life.failed(now), leases=lambda _: False))
    [[work]] = snapshot(holdfast_dsn)["work"]
    assert (work["worker"], work["queue"]) == (None, "unship")


@pytest.mark.parametrize("stride", ["begin_rollbacks", "undo_steps", "end_rollbacks"])
async def test_the_instance_is_locked_before_anything_else(holdfast_dsn: str, stride: str) -> None:
    """Its parts take their rows from the parameters and not from one another, so their order is worth a look."""
    async with opened(holdfast_dsn) as session:
        life, now = Life(session, saga(last_has_one=True), plain=True), await read_now(session)
        await until_it_fails(life, now)
        entry = await life.failed(now)
        while names(batch(now, entry)) != [stride]:
            await life.commit(entry, now)
            entry = life.done(now)
        with psycopg.connect(holdfast_dsn) as holder, psycopg.connect(holdfast_dsn, autocommit=True) as db:
            holder.execute("select from holdfast.instances for update")
            waiting = asyncio.create_task(life.commit(entry, now))
            await until(lambda: db.execute(WAITERS).fetchone())
            for table in ("work", "steps"):
                assert db.execute(f"select from holdfast.{table} for update nowait".encode()).fetchall()
            holder.rollback()
            await waiting
