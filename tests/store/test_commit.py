"""A batch of decisions becomes one transaction: all of it or nothing, in a fixed number of statements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from store_batches import (
    ME,
    OTHER,
    batch,
    commit,
    decision,
    dispatch,
    end,
    happened,
    instance,
    later,
    new,
    new_id,
    opened,
    read_now,
    refused,
    release,
    start,
    visit,
)

from holdfast.core.model.decision import Decision, Effect, KeyWait, Outgoing, Retried, Timer
from holdfast.core.model.ids import timer_id
from holdfast.core.model.signals import SYSTEM
from holdfast.core.model.state import Instance
from holdfast.core.model.status import InstanceStatus, StepStatus
from holdfast.store.commit.batch import Batch, ChildStart, SignalReceipt, writes
from holdfast.store.commit.needs import KeptEvent
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import Session

pytestmark = pytest.mark.anyio

Db = psycopg.Connection[Any]
TABLES = ("instances", "steps", "step_receipts", "outbox_receipts", "work", "signals", "inbox", "key_waits", "timers",
          "effects", "events")  # fmt: skip


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    async with opened(holdfast_dsn) as session:
        yield session


@pytest.fixture
def db(holdfast_dsn: str) -> Iterator[Db]:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        yield connection


def snapshot(db: Db) -> dict[str, list[Any]]:
    """Everything that is stored, table by table."""
    return {t: db.execute(f"select to_jsonb(x) from holdfast.{t} x order by 1").fetchall() for t in TABLES}


def work(db: Db) -> list[tuple[Any, ...]]:
    return db.execute(
        "select path, step_id, queue, target, worker, fence, deadline_at is not null from holdfast.work order by path"
    ).fetchall()


def advance(before: Instance, step: Any, now: int, **parts: Any) -> Decision:
    """Close the step and move on."""
    after = later(before)
    return decision(after, closed=[end(step, now, after.version)], events=[happened(after.version)], **parts)


# All or nothing


async def test_a_start_writes_every_table_it_concerns(session: Session, db: Db) -> None:
    first, step, _ = await start(session)
    stored = snapshot(db)
    assert {table: len(found) for table, found in stored.items() if found} == {
        "instances": 1, "steps": 1, "step_receipts": 1, "work": 1, "events": 1,
    }  # fmt: skip
    [(row,)] = stored["instances"]
    assert (row["status"], row["version"], row["flow"], row["last_by"]) == (
        "running", 1, first.flow, "11111111-1111-1111-1111-111111111111",
    )  # fmt: skip
    [(row,)] = stored["steps"]
    assert (row["node"], row["status"], row["calls"], row["fence"]) == ("reserve", "running", 1, 1)
    assert row["id"].replace("-", "") == step.id.hex()


async def test_an_old_version_refuses_the_whole_batch(session: Session, db: Db) -> None:
    first, step, now = await start(session)
    second, other_step, _ = await start(session)
    await commit(session, batch(now, Entry(first, [advance(first, step, now, released=[release()])])))
    before = snapshot(db)
    late = batch(
        now,
        Entry(second, [advance(second, other_step, now, released=[release()])]),
        Entry(first, [decision(later(first), events=[happened(2, 1)])]),
    )
    await refused(session, late, "HF001", "update_instances")
    assert snapshot(db) == before


@pytest.mark.parametrize("statement", ["hand_off_work", "return_work", "delete_work"])
@pytest.mark.parametrize("lost", ["fence", "worker"])
async def test_a_lost_lease_refuses_the_whole_batch(session: Session, db: Db, statement: str, lost: str) -> None:
    first, step, now = await start(session)
    db.execute(
        "update holdfast.work set fence = fence + 1"
        if lost == "fence"
        else f"update holdfast.work set worker = '{OTHER.hex()}'"
    )
    before = snapshot(db)
    after = later(first)
    following = visit(after, hop=2)
    parts: dict[str, Any] = {"released": [release()]}
    if statement != "delete_work":
        parts = {"opened": [following], "dispatches": [dispatch(following, now, held=1, fence=2)]}
    what = batch(now, Entry(first, [advance(first, step, now, **parts)]), leases=lambda _: statement == "hand_off_work")
    await refused(session, what, "HF001", statement)
    assert snapshot(db) == before


@pytest.mark.parametrize("statement", ["close_steps", "retry_steps"])
async def test_a_closed_step_refuses_the_whole_batch(session: Session, db: Db, statement: str) -> None:
    first, step, now = await start(session)
    closing = advance(first, step, now)
    await commit(session, batch(now, Entry(first, [closing])))
    before = snapshot(db)
    second = closing.instance
    again = (
        advance(second, step, now)
        if statement == "close_steps"
        else decision(later(second), retried=[Retried(step.id, now, 2, 2, b'{"code": "X"}')])
    )
    await refused(session, batch(now, Entry(second, [again])), "HF001", statement)
    assert snapshot(db) == before


async def test_a_second_receipt_refuses_the_whole_batch(session: Session, db: Db) -> None:
    first, step, now = await start(session)
    before = snapshot(db)
    twin = msgspec.structs.replace(visit(first), id=new_id())  # the same visit under another step id
    twice = decision(later(first), opened=[twin], events=[happened(2)])
    await refused(session, batch(now, Entry(first, [twice])), "23505", "insert_receipts")
    assert snapshot(db) == before
    assert step.id != twin.id


async def test_a_consumed_signal_is_consumed_once(session: Session, db: Db) -> None:
    first, _, now = await start(session)
    signal = new_id(first.id[15])
    target = Outgoing(first.id, signal, "event", b"{}")
    await commit(session, batch(now, Entry(first, [decision(later(first), outgoing=[target])])))
    second = later(first)
    await commit(session, batch(now, Entry(second, [decision(later(second))]), consumed=[(first.id, signal)]))
    before = snapshot(db)
    third = later(second)
    twice = batch(now, Entry(third, [decision(later(third))]), consumed=[(first.id, signal)])
    await refused(session, twice, "HF001", "delete_signals")
    assert snapshot(db) == before


async def test_a_repeated_signal_id_refuses_the_whole_batch(session: Session, db: Db) -> None:
    first, _, now = await start(session)
    receipt = SignalReceipt(first.id, first.org, "signal-1", b"hash")
    await commit(session, batch(now, Entry(first, [decision(later(first))]), receipts=[receipt]))
    before = snapshot(db)
    second = later(first)
    again = batch(now, Entry(second, [decision(later(second))]), receipts=[receipt])
    await refused(session, again, "23505", "insert_outbox_receipts")
    assert snapshot(db) == before


async def test_a_second_insert_of_an_instance_is_refused(session: Session, db: Db) -> None:
    first, _, now = await start(session)
    before = snapshot(db)
    again = batch(now, Entry(first, [decision(first)], new()))
    await refused(session, again, "23505", "insert_instances")
    assert snapshot(db) == before


async def test_after_a_refusal_the_session_goes_on(session: Session) -> None:
    first, step, now = await start(session)
    stale = msgspec.structs.replace(first, version=9)
    await refused(session, batch(now, Entry(stale, [decision(later(stale))])), "HF001", "update_instances")
    await commit(session, batch(now, Entry(first, [advance(first, step, now, released=[release()])])))


# One statement per table


def _many(now: int, size: int) -> Batch:
    """Each instance writes every table that a decision can reach."""
    entries: list[Entry] = []
    consumed: list[tuple[bytes, bytes]] = []
    kept: list[Any] = []
    receipts: list[Any] = []
    children: list[ChildStart] = []
    for n in range(size):
        one = instance(new_id(n % 256), version=2)
        step, following = visit(one), visit(one, hop=2)
        entries.append(
            Entry(
                one,
                [
                    decision(
                        later(one),
                        opened=[following],
                        closed=[end(step, now, 3)],
                        events=[happened(3)],
                        dispatches=[dispatch(following, now, held=1, fence=2)],
                        released=[release("0/1.0"), release("0/1.1", 0)],
                        retried=[Retried(step.id, now, 2, 2, None)],
                        timers=[Timer(timer_id(one.id, "w"), "0", "w", "timer", now)],
                        timers_ended=[timer_id(one.id, "v")],
                        effects=[Effect(new_id(one.id[15]), step.id, "0@1", "webhook", b"{}", f"key-{n}", False)],
                        key_waits=[KeyWait("paid", f"order-{n}", "0@2", step.id)],
                        key_waits_ended=[KeyWait("paid", f"order-{n}", "0@1", step.id)],
                        outgoing=[Outgoing(one.id, new_id(one.id[15]), "child_finished", b"{}")],
                        superseded=[(step.id, now)],
                    )
                ],
            )
        )
        consumed.append((one.id, one.id))
        receipts.append(SignalReceipt(one.id, one.org, str(n), b"hash"))
        kept.append((one.id, one.org, KeptEvent(new_id(one.id[15]), "paid", None, SYSTEM, "", now, now + 1)))
        children.append(ChildStart(new_id(), one.org, one.definition, "sub", 1, b"{}", one.id, "0@1", None))
    return batch(now, *entries, consumed=consumed, receipts=receipts, kept=kept, children=children)


def test_the_number_of_statements_does_not_depend_on_the_size_of_the_batch() -> None:
    ten, thousand = writes(_many(1, 10)), writes(_many(1, 1_000))
    names = [query.name for query in ten]
    assert [query.name for query in thousand] == names
    assert len(set(names)) == len(names)


async def test_a_thousand_starts_are_one_commit(session: Session, db: Db) -> None:
    now = await read_now(session)
    entries: list[Entry] = []
    for n in range(1_000):
        first = instance(new_id(n % 256))
        step = visit(first)
        opening = decision(first, opened=[step], dispatches=[dispatch(step, now)], events=[happened(1)])
        entries.append(Entry(first, [opening], new()))
    queries = writes(batch(now, *entries))
    assert len(queries) == 5
    await commit(session, batch(now, *entries))
    counts = db.execute(
        "select (select count(*) from holdfast.instances), (select count(*) from holdfast.steps),"
        " (select count(*) from holdfast.work), (select count(distinct xmin::text) from holdfast.steps)"
    ).fetchone()
    assert counts == (1_000, 1_000, 1_000, 1)


async def test_a_statement_without_rows_is_not_sent() -> None:
    first = instance(version=2)
    assert [q.name for q in writes(batch(1, Entry(first, [decision(later(first))])))] == [b"update_instances"]


async def test_data_that_did_not_change_is_not_written() -> None:
    first = instance(version=2, data=b'{"a": 1}')
    [same] = writes(batch(1, Entry(first, [decision(later(first))])))
    [changed] = writes(batch(1, Entry(first, [decision(later(first, data=b'{"a": 2}'))])))
    assert b'"a": 1' not in b"".join(p for p in same.parameters if p)
    assert b'"a": 2' in b"".join(p for p in changed.parameters if p)


async def test_the_version_of_a_document_is_that_of_each_decision(session: Session, db: Db) -> None:
    """It is written with the instance where it changed; each step has that of the decision that opened it."""
    first, _, now = await start(session)
    second = later(first, entity_version=3)
    third = later(second, entity_version=4)
    changes = [decision(after, opened=[visit(after, after.version)]) for after in (second, third)]
    await commit(session, batch(now, Entry(first, changes)))
    steps = "select array_agg(entity_version order by hop) from holdfast.steps"
    read = f"select (select entity_version from holdfast.instances), ({steps})"
    assert db.execute(read).fetchone() == (4, [0, 3, 4])
    await commit(session, batch(now, Entry(third, [decision(later(third))])))
    assert db.execute(read).fetchone() == (4, [0, 3, 4])


# What becomes of a work row


def folded(*decisions: Decision, leases: bool = True) -> dict[str, int]:
    """Which statements touch `work`, and how many rows each has."""
    first = instance(version=2)
    entry = Entry(first, list(decisions))
    seen: dict[str, int] = {}
    for query in writes(batch(1, entry, leases=lambda _: leases)):
        if b"work" in query.name:
            first_column = query.parameters[0]
            assert first_column is not None
            seen[query.name.decode()] = int.from_bytes(first_column[12:16], "big")
    return seen


def _step() -> tuple[Instance, Any]:
    after = instance(version=3)
    return after, visit(after)


def test_a_dispatch_that_is_released_in_the_same_batch_leaves_no_trace() -> None:
    after, step = _step()
    assert folded(decision(after, dispatches=[dispatch(step, 1)]), decision(after, released=[release()])) == {}


def test_a_hand_off_that_is_released_in_the_same_batch_ends_the_row() -> None:
    after, step = _step()
    handed = decision(after, dispatches=[dispatch(step, 1, held=1, fence=2)])
    assert folded(handed, decision(after, released=[release(fence=2)])) == {"delete_work": 1}


def test_a_release_that_is_followed_by_a_dispatch_keeps_the_row() -> None:
    after, step = _step()
    ended, opened = decision(after, released=[release()]), decision(after, dispatches=[dispatch(step, 1, fence=2)])
    assert folded(ended, opened) == {"hand_off_work": 1}
    assert folded(ended, opened, leases=False) == {"return_work": 1}


def test_a_dropped_row_that_is_dispatched_anew_is_replaced() -> None:
    after, step = _step()
    dropped = decision(after, released=[release(fence=0)])
    assert folded(dropped, decision(after, dispatches=[dispatch(step, 1, fence=5)])) == {
        "drop_work": 1, "insert_work": 1,
    }  # fmt: skip


def test_two_hand_offs_in_one_batch_are_one() -> None:
    after, step = _step()
    once = decision(after, dispatches=[dispatch(step, 1, held=1, fence=2)])
    twice = decision(after, dispatches=[dispatch(visit(after, hop=2), 1, held=2, fence=3)])
    assert folded(once, twice) == {"hand_off_work": 1}


def test_a_step_whose_input_only_its_row_knows_is_not_leased() -> None:
    after, step = _step()
    assert folded(decision(after, dispatches=[dispatch(step, 1, held=1, fence=2, input=None)])) == {"return_work": 1}


async def test_a_hand_off_changes_the_row_in_place(session: Session, db: Db) -> None:
    first, step, now = await start(session)
    after = later(first)
    following = visit(after, hop=2)
    handed = dispatch(following, now, held=1, fence=2, queue="other", timeout=30.0)
    await commit(
        session, batch(now, Entry(first, [advance(first, step, now, opened=[following], dispatches=[handed])]))
    )
    [(path, step_id, queue, target, worker, fence, has_deadline)] = work(db)
    assert (path, step_id.bytes, queue, target, worker.bytes, fence, has_deadline) == (
        "0", following.id, "main", "other", ME, 2, True,
    )  # fmt: skip


async def test_work_handed_back_waits_in_the_queue_of_its_step(session: Session, db: Db) -> None:
    first, step, now = await start(session)
    after = later(first)
    following = visit(after, hop=2)
    back = dispatch(following, now, held=1, fence=2, queue="other", timeout=30.0)
    entry = Entry(first, [advance(first, step, now, opened=[following], dispatches=[back])])
    await commit(session, batch(now, entry, leases=lambda _: False))
    [(_, _, queue, target, worker, fence, has_deadline)] = work(db)
    assert (queue, target, worker, fence, has_deadline) == ("other", "other", None, 2, False)
    calls = db.execute("select calls from holdfast.steps where id = %s", [following.id.hex()]).fetchone()
    assert calls == (0,)  # the claim will count it


async def test_dropped_work_ends_whoever_holds_it(session: Session, db: Db) -> None:
    first, _, now = await start(session)
    db.execute(f"update holdfast.work set worker = '{OTHER.hex()}', fence = 9")
    await commit(session, batch(now, Entry(first, [decision(later(first), released=[release(fence=0)])])))
    assert work(db) == []


# Several decisions of one instance


async def test_a_step_may_open_and_close_in_one_batch(session: Session, db: Db) -> None:
    now = await read_now(session)
    first = instance()
    step = visit(first)
    opening = decision(first, opened=[step], dispatches=[dispatch(step, now)], events=[happened(1)])
    second = later(first, status=InstanceStatus.COMPLETED)
    closing = decision(second, closed=[end(step, now, 2)], released=[release()], events=[happened(2)])
    await commit(session, batch(now, Entry(first, [opening, closing], new())))
    [(status, outcome, version)] = db.execute("select status, outcome, closed_version from holdfast.steps").fetchall()
    assert (status, outcome, version) == ("completed", "completed", 2)
    assert work(db) == []
    [row] = db.execute("select status, version, completed_at is not null from holdfast.instances").fetchall()
    assert row == ("completed", 2, True)


async def test_a_step_that_is_decided_at_once_is_one_row(session: Session, db: Db) -> None:
    now = await read_now(session)
    first = instance()
    passed = visit(first, behaviour="pass", status=StepStatus.COMPLETED, closed=True, chosen=b'["e1"]')
    await commit(session, batch(now, Entry(first, [decision(first, opened=[passed])], new())))
    [row] = db.execute(
        "select status, chosen_edge_ids, closed_at = created_at, closed_version = opened_version from holdfast.steps"
    ).fetchall()
    assert row == ("completed", ["e1"], True, True)


async def test_decisions_of_one_instance_become_one_update(session: Session, db: Db) -> None:
    first, _, now = await start(session)
    second = later(first)
    third = later(second, data=b'{"n": 3}')
    await commit(session, batch(now, Entry(first, [decision(second), decision(third)])))
    assert db.execute("select version, data from holdfast.instances").fetchall() == [(3, {"n": 3})]


async def test_the_last_error_stays_until_another_comes(session: Session, db: Db) -> None:
    first, _, now = await start(session)
    second = later(first)
    await commit(session, batch(now, Entry(first, [decision(second, error=b'{"code": "A"}')])))
    await commit(session, batch(now, Entry(second, [decision(later(second))])))
    assert db.execute("select last_error from holdfast.instances").fetchall() == [({"code": "A"},)]


async def test_every_timestamp_of_a_batch_is_its_moment(session: Session, db: Db) -> None:
    await start(session)
    [same] = db.execute(
        "select count(distinct at) from (select created_at from holdfast.instances union all"
        " select created_at from holdfast.steps union all select created_at from holdfast.step_receipts union all"
        " select step_created_at from holdfast.work union all select created_at from holdfast.events) x(at)"
    ).fetchall()
    assert same == (1,)
