"""Taking a batch apart: what it costs, and who is to blame for what."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from typing import Any, cast

import pytest
from letters import POISON, counter, send

from holdfast import Context, Engine, Flow
from holdfast.core.model.signals import WorkDone
from holdfast.errors import HoldfastError, StoreError
from holdfast.runtime.commit import batch as plan
from holdfast.runtime.commit import failures
from holdfast.runtime.commit.bisect import Isolation
from holdfast.runtime.commit.classify import Suspicion, kind_of
from holdfast.runtime.commit.failures import Mishaps, Tried
from holdfast.runtime.commit.items import Item
from holdfast.store.commit.batch import Batch
from holdfast.store.pg.session import DatabaseError, Session
from holdfast.store.pg.statements import Query
from running import Evidence, until

pytestmark = pytest.mark.anyio

# As a deployment gone wrong: whatever a handler answers is refused, in every statement that would store it.
REFUSE_ALL = """
    create function public.refuse_all() returns trigger language plpgsql as $$
    begin
        raise exception 'not today, % either', new.id;
    end $$;
    create trigger refuse_all before update on holdfast.steps for each row when (new.output is not null)
        execute function public.refuse_all();
"""
STOP_REFUSING = "drop trigger refuse_all on holdfast.steps"


async def echo(ctx: Context, data: Any) -> Any:
    return data


# --- by halves ------------------------------------------------------------------------------------------------------


class Bench:
    """Stands for the mishaps: refuses any part with a bad item in it, and remembers what it was asked."""

    def __init__(self, bad: dict[int, str]) -> None:
        self.bad = bad
        self.commits = 0
        self.stored: list[int] = []
        self.blamed: list[int] = []
        self.kept: list[int] = []

    async def try_alone(self, session: Session, items: list[Item]) -> Tried:
        self.commits += 1
        numbers = [number(item) for item in items]
        found = [self.bad[n] for n in numbers if n in self.bad]
        if found:
            return Tried(DatabaseError(found[0], "bad", "close_steps"), set())
        self.stored += numbers
        return Tried(None, set(), True)

    async def judge(self, session: Session, refused: list[tuple[Item, Exception]], *, stored: bool) -> None:
        (self.blamed if stored or len(refused) <= 3 else self.kept).extend(number(item) for item, _ in refused)

    async def hold(self, items: list[Item], failure: Exception) -> None:
        self.kept += [number(item) for item in items]

    async def pause(self, failure: Exception) -> None:
        pass

    def again(self, items: list[Item]) -> None:
        self.kept += [number(item) for item in items]


def number(item: Item) -> int:
    return int.from_bytes(item.instance, "big")


async def take_apart(size: int, bad: dict[int, str]) -> Bench:
    bench = Bench(bad)
    items = [Item(n.to_bytes(16, "big"), WorkDone("0", b"s" * 16, 1, b"{}")) for n in range(size)]
    await Isolation(cast(Mishaps, bench), cast(Session, None)).take_apart(items)
    return bench


@pytest.mark.parametrize("culprit", [0, 100, 255])
async def test_one_bad_row_in_256_costs_sixteen_commits(culprit: int) -> None:
    bench = await take_apart(256, {culprit: "23514"})
    assert bench.commits == 16
    assert bench.blamed == [culprit]
    assert bench.stored == [n for n in range(256) if n != culprit]  # in their order


async def test_several_are_found_and_the_others_stored() -> None:
    bad = dict.fromkeys([3, 4, 17, 40, 41, 60], "22003")
    bench = await take_apart(64, bad)
    assert bench.blamed == sorted(bad)
    assert len(bench.stored) == 58
    assert bench.kept == []


async def test_when_all_are_refused_a_few_say_it_for_the_rest() -> None:
    bench = await take_apart(256, dict.fromkeys(range(256), "P0001"))
    assert (bench.stored, bench.blamed) == ([], [])
    assert sorted(bench.kept) == list(range(256))
    assert bench.commits < 20


async def test_what_passes_and_what_is_systemic_is_nobodys_fault() -> None:
    passing = await take_apart(4, {2: "40001"})
    assert (passing.stored, passing.blamed, passing.kept) == ([0, 1], [], [2, 3])
    systemic = await take_apart(4, {0: "23514", 2: "42501"})
    assert (systemic.stored, systemic.blamed, systemic.kept) == ([1], [], [0, 2, 3])


def test_suspicion_needs_several_instances_that_are_refused_alike() -> None:
    suspicion = Suspicion()
    for _ in range(9):
        suspicion.add(b"one", "23514")
    for instance in (b"two", b"three"):
        suspicion.add(instance, "23514")
    assert suspicion
    assert not suspicion.is_systemic
    suspicion.add(b"four", "23514")
    assert suspicion.is_systemic
    suspicion.add(b"five", "22003")
    assert not suspicion.is_systemic


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (DatabaseError("23503", "", ""), "poison"),
        (DatabaseError("23505", "", ""), "race"),
        (DatabaseError("42501", "", ""), "systemic"),
        (DatabaseError("53100", "", ""), "passing"),
        (StoreError("", code="SCHEMA_MISMATCH"), "systemic"),
        (struct.error("too big"), "defect"),
        (HoldfastError("", code="ODD"), "defect"),
    ],
)
def test_kinds_of_failures(failure: Exception, kind: str) -> None:
    assert kind_of(failure) == kind


# --- what our own code chokes on --------------------------------------------------------------------------------------


def choke_on_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that passes the decision and has no place on the wire."""
    real = plan.writes

    def writes(batch: Batch) -> list[Query]:
        closed = [step for entry in batch.entries for decision in entry.decisions for step in decision.closed]
        if any(b'"odd"' in (step.output or b"") for step in closed):
            raise struct.error("'h' format requires -32768 <= number <= 32767")
        return real(batch)

    monkeypatch.setattr(plan, "writes", writes)


async def test_a_result_that_cannot_be_encoded_fails_only_its_own_step(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    choke_on_odd(monkeypatch)
    engine.register("echo", echo)
    await engine.publish(Flow("parcels").step("first", "echo").step("second", "echo").build())
    odd = await engine.start("parcels", {"odd": 1})
    fine = await engine.start_many("parcels", [{"n": n} for n in range(20)])
    await engine.drain(timeout=30)
    assert {(await engine.get(i.id)).status for i in fine} == {"completed"}
    failed = await engine.get(odd.id)
    assert (failed.status, failed.error["code"]) == ("failed", "DECISION_FAILED")
    assert "format requires" in failed.error["message"]
    assert evidence.ask("select count(*) from holdfast.work") == 0


async def test_a_queued_signal_that_cannot_be_encoded_is_counted_and_buried(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, other = await counter(engine), await engine.start("counter")
    await engine.drain(timeout=30)
    choke_on_odd(monkeypatch)
    send(evidence, id, "tick", {"odd": 1})
    send(evidence, other.id, "stop")
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters()
    assert (letter.instance_id, letter.reason, letter.attempts) == (id, "ATTEMPTS_EXHAUSTED", 5)
    assert "format requires" in letter.error["message"]
    assert (await engine.get(other.id)).status == "completed"


async def test_a_request_that_cannot_be_encoded_is_answered(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    id = await counter(engine)
    choke_on_odd(monkeypatch)
    odd, fine = await asyncio.gather(
        engine.signal(id, "tick", {"odd": 1}), engine.signal(id, "tick", {"n": 1}), return_exceptions=True
    )
    assert isinstance(odd, HoldfastError)
    assert odd.code == "DECISION_FAILED"
    assert not isinstance(fine, BaseException)
    assert [s.output for s in await engine.steps(id) if s.outcome == "tick"] == [{"n": 1}]


# --- nobody's fault ---------------------------------------------------------------------------------------------------


def alarms(caplog: pytest.LogCaptureFixture) -> Sequence[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno == logging.CRITICAL]


async def test_results_that_are_all_refused_are_kept(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger that raises for everybody must not take every flow with it."""
    engine.register("echo", echo)
    flows = [Flow("short").step("one", "echo"), Flow("long").step("one", "echo").step("two", "echo")]
    for flow in flows:
        await engine.publish(flow.build())
    evidence.connection.execute(REFUSE_ALL)
    started = [i for flow in ("short", "long") for i in await engine.start_many(flow, [{"n": n} for n in range(6)])]
    async with engine.worker():
        await until(lambda: len(alarms(caplog)) >= 2)
        assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
        assert {(await engine.get(i.id)).status for i in started} == {"running"}
        evidence.connection.execute(STOP_REFUSING)
        assert {(await engine.wait(i.id, timeout=30)).status for i in started} == {"completed"}
    assert "nothing is dropped" in alarms(caplog)[0].getMessage()


async def test_results_that_come_one_by_one_and_are_all_refused_are_kept_too(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    engine.register("echo", echo)
    await engine.publish(Flow("short").step("one", "echo").build())
    evidence.connection.execute(REFUSE_ALL)
    async with engine.worker():
        for _ in range(3):  # these might be unlucky
            instance = await engine.start("short", {"n": 1})
            assert (await engine.wait(instance.id, timeout=30)).status == "failed"
            assert (await engine.get(instance.id)).error["code"] == "RESULT_REFUSED"
        kept = await engine.start("short", {"n": 1})
        await until(lambda: alarms(caplog))
        assert (await engine.get(kept.id)).status == "running"
        evidence.connection.execute(STOP_REFUSING)
        assert (await engine.wait(kept.id, timeout=30)).status == "completed"


async def test_many_that_are_poison_are_blamed_as_soon_as_another_is_stored(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "SYSTEMIC_PAUSE", 0.01)
    engine.register("echo", echo)
    await engine.publish(Flow("parcels").step("first", "echo").build())
    evidence.connection.execute(POISON)
    bad = await engine.start_many("parcels", [{"poison": n} for n in range(8)])
    good = await engine.start_many("parcels", [{"n": n} for n in range(8)])
    await engine.drain(timeout=60)
    assert {(await engine.get(i.id)).status for i in good} == {"completed"}
    assert {(await engine.get(i.id)).error["code"] for i in bad} == {"RESULT_REFUSED"}


async def test_queued_signals_that_are_all_refused_are_kept(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failures, "SYSTEMIC_PAUSE", 0.01)
    ids = [await counter(engine) for _ in range(5)]
    evidence.connection.execute(REFUSE_ALL)
    for id in ids:
        send(evidence, id, "tick", {"n": 1})
    async with engine.worker():
        await until(lambda: len(alarms(caplog)) > len(ids) * failures.MAX_ATTEMPTS)
        assert evidence.ask("select max(attempts) from holdfast.signals") < failures.MAX_ATTEMPTS
        assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
        evidence.connection.execute(STOP_REFUSING)
        await until(lambda: evidence.ask("select count(*) from holdfast.signals") == 0)
    assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
    for id in ids:
        assert [s.output for s in await engine.steps(id) if s.outcome == "tick"] == [{"n": 1}]


async def test_trouble_with_the_schema_is_not_blamed_on_what_stands_alone(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The batch fails for one row's data; taken apart, another one meets a missing privilege."""
    monkeypatch.setattr(failures, "SYSTEMIC_PAUSE", 0.01)
    engine.register("echo", echo)
    await engine.publish(Flow("short").step("one", "echo").build())
    evidence.connection.execute(POISON)
    evidence.connection.execute(
        REFUSE_ALL.replace("new.output is not null", "new.output ? 'locked'").replace(
            "'not today, % either', new.id", "'permission denied' using errcode = '42501'"
        )
    )
    poison, locked = await engine.start("short", {"poison": 1}), await engine.start("short", {"locked": 1})
    async with engine.worker():
        await until(lambda: len(alarms(caplog)) >= 3)
        assert (await engine.get(locked.id)).status == "running"
        assert evidence.ask("select count(*) from holdfast.dead_letters") == 0
        evidence.connection.execute(STOP_REFUSING)
        assert (await engine.wait(locked.id, timeout=30)).status == "completed"
        assert (await engine.wait(poison.id, timeout=30)).status == "failed"
    assert (await engine.get(poison.id)).error["code"] == "RESULT_REFUSED"


async def test_a_statement_that_cannot_be_prepared_drops_no_result(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(failures, "SYSTEMIC_PAUSE", 0.01)
    engine.register("echo", echo)
    await engine.publish(Flow("short").step("one", "echo").build())
    evidence.connection.execute("alter table holdfast.steps rename column output to outcome_of_it")
    instance = await engine.start("short", {"n": 1})
    async with engine.worker():
        await until(lambda: len(alarms(caplog)) >= 3)
        evidence.connection.execute("alter table holdfast.steps rename column outcome_of_it to output")
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"


# --- a failure that cannot be stored ----------------------------------------------------------------------------------


async def test_a_failure_the_database_refuses_parks_its_step(engine: Engine, evidence: Evidence) -> None:
    """It was dropped, and the step stayed with a worker that had forgotten it."""

    @engine.handler("fail")
    async def fail(ctx: Context, data: Any) -> Any:
        raise RuntimeError("unspeakable")

    await engine.publish(Flow("sad").step("one", "fail").build())
    evidence.connection.execute(
        "alter table holdfast.steps add constraint polite check (error is null or error::text not like '%unspeakable%')"
    )
    instance = await engine.start("sad", {"n": 1})
    async with engine.worker():
        [letter] = await until(lambda: engine.dead_letters(instance.id))
        assert (letter.source, letter.reason) == ("work", "STORE_REFUSED")
        assert evidence.ask("select count(*) from holdfast.work where worker is not null") == 0
        evidence.connection.execute("alter table holdfast.steps drop constraint polite")
        await engine.requeue(letter.id, by="ann", reason="rude after all")
        assert (await engine.wait(instance.id, timeout=30)).status == "failed"
    assert (await engine.get(instance.id)).error["message"] == "unspeakable"
