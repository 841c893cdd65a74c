"""Commits that do not go through: who is to blame is buried with a reason, the others go on, and nothing hangs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from letters import POISON, counter, send

from holdfast import Context, Engine, Flow, Retry
from holdfast.core.model import snapshot
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import EventArrived, Signal, WorkDone, WorkFailed
from holdfast.core.model.state import Instance
from holdfast.errors import Conflict, HoldfastError
from holdfast.runtime.commit import batch
from holdfast.runtime.ops.dead_letters import LetterFilter
from running import Evidence, until

pytestmark = pytest.mark.anyio

# A guard of ours that never holds for one event: the SQLSTATE of a race that no repetition wins.
GUARD = """
    create function public.refuse_cursed() returns trigger language plpgsql as $$
    begin
        raise exception 'close_steps: 0 rows instead of 1' using errcode = 'HF001';
    end $$;
    create trigger cursed after update on holdfast.steps for each row when (new.output ? 'cursed')
        execute function public.refuse_cursed();
"""


async def test_a_flow_that_waits_by_key_buries_what_it_refuses(engine: Engine, evidence: Evidence) -> None:
    """Such a flow is decided twice, once to learn which keys to lock; the refusal must not break the first pass."""
    keyed: dict[str, Any] = {
        "name": "keyed",
        "entry": "rest",
        "nodes": [
            {"id": "rest", "kind": "state"},
            {"id": "paid", "kind": "wait_event", "wait": {"event": "paid", "key": "context.order"}},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": "bill", "source": "rest", "target": "paid", "on": "bill"},
            {"id": "stop", "source": "rest", "target": "end", "on": "stop"},
            {"id": "out", "source": "paid", "target": "end"},
        ],
    }
    await engine.publish(keyed)
    instance = await engine.start("keyed", {"order": "17"})
    await engine.drain(timeout=30)
    with evidence.connection.transaction():  # both in one batch: the second comes to an instance that is over
        send(evidence, instance.id, "stop")
        send(evidence, instance.id, "bill")
    await engine.drain(timeout=30)
    assert (await engine.get(instance.id)).status == "completed"
    [letter] = await engine.dead_letters(instance.id)
    assert (letter.reason, letter.envelope["payload"]["event"]) == ("INSTANCE_OVER", "bill")


def burials(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    fields = "flow", "step", "signal", "instance", "attempt", "next"
    return [
        tuple(r.__dict__.get(field) for field in fields)
        for r in caplog.records
        if r.getMessage().startswith("Dead letter opened")
    ]


async def test_a_guard_that_never_holds_is_counted_and_buried(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    """A race is repeated; one that nobody wins is not repeated for ever."""
    id, other = await counter(engine), await engine.start("counter")
    await engine.drain(timeout=30)
    evidence.connection.execute(GUARD)
    send(evidence, id, "tick", {"cursed": 1})
    send(evidence, other.id, "stop")
    await engine.drain(timeout=60)
    [letter] = await engine.dead_letters(id)
    assert (letter.reason, letter.attempts) == ("ATTEMPTS_EXHAUSTED", 5)
    assert "HF001" in letter.error["message"]
    assert burials(caplog) == [("counter", None, "event", id, 5, "dead letter")]
    assert (await engine.get(other.id)).status == "completed"
    assert (await engine.signal(id, "stop")).status == "completed"


async def test_a_result_whose_guard_never_holds_is_buried(
    engine: Engine, evidence: Evidence, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(ctx: Context, data: Any) -> Any:
        return data

    engine.register("echo", echo)
    await engine.publish(Flow("echoing").step("one", "echo").build())
    evidence.connection.execute(GUARD)
    cursed, other = await engine.start("echoing", {"cursed": 1}), await engine.start("echoing", {"n": 1})
    await engine.drain(timeout=60)
    [letter] = await engine.dead_letters()
    assert (letter.instance_id, letter.source, letter.reason) == (cursed.id, "work", "ATTEMPTS_EXHAUSTED")
    assert "HF001" in letter.error["message"]
    assert burials(caplog) == [("echoing", "one", None, cursed.id, 1, "dead letter")]
    assert (await engine.get(other.id)).status == "completed"
    evidence.connection.execute("drop trigger cursed on holdfast.steps")
    await engine.requeue(letter.id, by="ann", reason="the guard is gone")
    await engine.drain(timeout=60)
    assert (await engine.get(cursed.id)).status == "completed"


async def test_a_poisoned_branch_does_not_fail_its_sibling(engine: Engine, evidence: Evidence) -> None:
    """Both results of one instance come in one batch; only one of them cannot be stored."""
    together = asyncio.Barrier(2)

    async def clean(ctx: Context, data: Any) -> Any:
        await together.wait()
        return {"clean": True}

    async def dirty(ctx: Context, data: Any) -> Any:
        await together.wait()
        await asyncio.sleep(0)  # the clean one is first: behind a failure it would rightly be skipped
        return {"poison": True}

    engine.register("clean", clean)
    engine.register("dirty", dirty)
    graph: dict[str, Any] = {
        "name": "branches",
        "entry": "both",
        "nodes": [
            {"id": "both", "kind": "split"},
            {"id": "clean", "kind": "task", "handler": "clean"},
            {"id": "dirty", "kind": "task", "handler": "dirty"},
            {"id": "met", "kind": "join", "mode": "all"},
            {"id": "end", "kind": "end"},
        ],
        "edges": [
            {"id": f"{a}>{b}", "source": a, "target": b}
            for a, b in [("both", "clean"), ("both", "dirty"), ("clean", "met"), ("dirty", "met"), ("met", "end")]
        ],
    }
    await engine.publish(graph)
    evidence.connection.execute(POISON)
    instance = await engine.start("branches")
    await engine.drain(timeout=60)
    outcomes = {s.name: (s.status, s.error and s.error["code"]) for s in await engine.steps(instance.id)}
    assert outcomes["dirty"] == ("failed", "RESULT_REFUSED")
    assert outcomes["clean"] == ("completed", None)


async def test_the_signal_that_failed_is_counted_not_the_oldest(engine: Engine, evidence: Evidence) -> None:
    """Three signals of one instance, the second is poison: the first and the third are applied."""
    id = await counter(engine)
    evidence.connection.execute(POISON)
    send(evidence, id, "tick", {"n": 1})
    bad = send(evidence, id, "tick", {"poison": 2})
    send(evidence, id, "tick", {"n": 3})
    await engine.drain(timeout=60)
    [letter] = await engine.dead_letters(id)
    assert (letter.envelope["id"], letter.attempts) == (bad, 5)
    assert [s.output for s in await engine.steps(id) if s.outcome == "tick"] == [{"n": 1}, {"n": 3}]


async def test_a_signal_that_is_tried_again_is_not_overtaken(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes wrong once passes; the order in which the signals of an instance were sent does not change by it."""
    id = await counter(engine)
    real, failed = batch.decide, list[bytes]()

    def stumbling(program: Program, instance: Instance, signal: Signal, facts: Facts) -> Decision:
        raw = getattr(signal, "raw", None)
        if raw is not None and b"first" in raw and not failed:
            failed.append(raw)
            raise ZeroDivisionError("a defect that passes")
        return real(program, instance, signal, facts)

    monkeypatch.setattr(batch, "decide", stumbling)
    with evidence.connection.transaction():  # both in one batch
        for name in ("first", "second", "third"):
            send(evidence, id, "tick", {"n": name})
    await engine.drain(timeout=30)
    assert len(failed) == 1
    assert [s.output for s in await engine.steps(id) if s.outcome == "tick"] == [
        {"n": name} for name in ("first", "second", "third")
    ]
    assert await engine.dead_letters(id) == []


async def test_what_stands_behind_a_defect_is_applied_once_that_is_buried(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = await counter(engine)
    break_on(monkeypatch, EventArrived)
    with evidence.connection.transaction():
        bad = send(evidence, id, "tick", {"odd": True})
        send(evidence, id, "stop")
    async with engine.worker(scan=60):
        await until(lambda: evidence.ask("select status = 'completed' from holdfast.instances where id = %s", id), 10)
    [letter] = await engine.dead_letters(id)
    assert (letter.envelope["id"], letter.attempts) == (bad, 5)


async def test_a_missing_definition_is_a_letter_and_stops_nobody(engine: Engine, evidence: Evidence) -> None:
    async def echo(ctx: Context, data: Any) -> Any:
        return data

    await engine.publish(Flow("gone").step("echo", echo).build())
    await engine.publish(Flow("here").step("echo", echo).build())
    gone, here = await engine.start("gone"), await engine.start("here")
    forget(evidence, "gone")
    async with Engine(engine.dsn) as fresh:
        fresh.register("echo", echo)
        await fresh.drain(timeout=30)
        assert (await fresh.get(here.id)).status == "completed"
        [letter] = await fresh.dead_letters(gone.id)
        assert (letter.reason, letter.source) == ("DEFINITION_MISSING", "signal")
        restore(evidence, "gone")
        await fresh.requeue(letter.id)
        await fresh.drain(timeout=30)
        assert (await fresh.get(gone.id)).status == "completed"


async def test_work_of_a_missing_definition_is_parked_and_comes_back(engine: Engine, evidence: Evidence) -> None:
    calls: list[str] = []

    async def echo(ctx: Context, data: Any) -> Any:
        calls.append(ctx.instance)
        return data

    await engine.publish(Flow("gone").step("echo", echo, retry=Retry(attempts=2)).build())
    await engine.publish(Flow("here").step("echo", echo).build())
    engine.handlers = type(engine.handlers)()  # this process only decides; the work lies in the queue
    gone, here = await engine.start("gone"), await engine.start("here")
    await engine.drain(timeout=30)
    forget(evidence, "gone")
    async with Engine(engine.dsn) as fresh:
        fresh.register("echo", echo)
        await fresh.drain(timeout=30)
        assert (await fresh.get(here.id)).status == "completed"
        [letter] = await fresh.dead_letters(gone.id)
        assert (letter.reason, letter.source, letter.envelope["node"]) == ("DEFINITION_MISSING", "work", "echo")
        assert calls == [here.id]
        left = await fresh.discard_dead_letters([letter.id])
        assert (left.ids, left.left) == ([], [letter.id])
        restore(evidence, "gone")
        await fresh.replay_dead_letters(filter=LetterFilter(source="work"), by="ann")
        await fresh.drain(timeout=30)
        ended = await fresh.get(gone.id)
        assert (ended.status, calls) == ("completed", [here.id, gone.id])


def forget(evidence: Evidence, name: str) -> None:
    with evidence.connection.transaction():
        evidence.connection.execute("set local session_replication_role = replica")
        evidence.connection.execute(
            "create table public.lost as select * from holdfast.definitions where name = %s", (name,)
        )
        evidence.connection.execute("delete from holdfast.definitions where name = %s", (name,))


def restore(evidence: Evidence, name: str) -> None:
    evidence.connection.execute("insert into holdfast.definitions select * from public.lost")


async def test_a_snapshot_of_a_newer_release_is_left_as_it_is(engine: Engine, evidence: Evidence) -> None:
    id, other = await counter(engine), await engine.start("counter")
    await engine.drain(timeout=30)
    newer = '{"format": 99, "wonders": true}'
    rewrite(evidence, id, newer)
    send(evidence, id, "stop")
    send(evidence, other.id, "stop")
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    assert (letter.reason, letter.source) == ("SNAPSHOT_TOO_NEW", "signal")
    assert evidence.ask("select state::text from holdfast.instances where id = %s", id) == newer
    assert (await engine.get(other.id)).status == "completed"
    with pytest.raises(HoldfastError, match="SNAPSHOT_TOO_NEW"):
        await engine.signal(id, "tick")
    assert (await engine.runtime(id)).snapshot_format == 99


async def test_an_old_snapshot_in_the_database_runs_to_its_end(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: the row was stored by a release that wrote tokens as a list."""
    id = await counter(engine)
    tokens = evidence.ask("select state -> 'tokens' from holdfast.instances where id = %s", id)
    old = {"format": 0, "token_list": [{"path": path, **token} for path, token in tokens.items()]}
    rewrite(evidence, id, json.dumps(old))

    def key_the_tokens(document: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": {token.pop("path"): token for token in document["token_list"]}}

    monkeypatch.setitem(snapshot.UPGRADES, 0, key_the_tokens)
    assert (await engine.signal(id, "tick")).status == "running"
    assert evidence.ask("select state ? 'format' from holdfast.instances where id = %s", id) is False
    assert (await engine.signal(id, "stop")).status == "completed"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ('{"tokens": 5}', "SNAPSHOT_UNREADABLE"),
        ('{"tokens": {"0": {"hop": 0, "node": "elsewhere", "phase": "resting"}}}', "SNAPSHOT_INCONSISTENT"),
        ('{"format": -7}', "SNAPSHOT_TOO_OLD"),
    ],
)
async def test_an_inconsistent_snapshot_is_a_letter_and_stops_nobody(
    engine: Engine, evidence: Evidence, state: str, code: str
) -> None:
    id, other = await counter(engine), await engine.start("counter")
    await engine.drain(timeout=30)
    whole = evidence.ask("select state::text from holdfast.instances where id = %s", id)
    rewrite(evidence, id, state)
    send(evidence, id, "stop")
    send(evidence, other.id, "stop")
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(id)
    assert letter.reason == code
    assert (await engine.get(other.id)).status == "completed"
    rewrite(evidence, id, whole)
    await engine.requeue(letter.id)
    await engine.drain(timeout=30)
    assert (await engine.get(id)).status == "completed"


def rewrite(evidence: Evidence, id: str, state: str) -> None:
    with evidence.connection.transaction():
        evidence.connection.execute("set local session_replication_role = replica")
        evidence.connection.execute("update holdfast.instances set state = %s where id = %s", (state, id))


async def test_a_result_nothing_can_be_decided_on_fails_its_step(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`decide` breaks on it: counted as a failure of the step, in sight, and the worker goes on."""
    break_on(monkeypatch, WorkDone)
    await engine.publish(Flow("odd").step("odd", answer_odd).build())
    odd, fine = await engine.start("odd", {"odd": True}), await engine.start("odd")
    await engine.drain(timeout=30)
    failed = await engine.get(odd.id)
    assert (failed.status, failed.error["code"]) == ("failed", "DECISION_FAILED")
    assert (await engine.get(fine.id)).status == "completed"
    assert evidence.ask("select count(*) from holdfast.work") == 0


async def test_a_step_whose_failure_cannot_be_decided_either_is_parked(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on(monkeypatch, WorkDone, WorkFailed)
    await engine.publish(Flow("odd").step("odd", answer_odd).build())
    odd, fine = await engine.start("odd", {"odd": True}), await engine.start("odd")
    async with engine.worker():
        letters = await until(lambda: engine.dead_letters(odd.id))
        assert (await engine.wait(fine.id, timeout=20)).status == "completed"
        assert evidence.ask("select count(*) from holdfast.work where worker is not null") == 0
    [letter] = letters
    assert (letter.source, letter.reason, letter.attempts) == ("work", "DECISION_FAILED", 1)
    assert letter.envelope["input"] == {"odd": True}
    assert [e.node for e in await engine.events(odd.id) if e.type == "step_dead_lettered"] == ["odd"]
    monkeypatch.undo()
    await engine.requeue(letter.id, by="ann", reason="new release")
    await engine.drain(timeout=30)
    assert (await engine.get(odd.id)).status == "completed"


async def test_an_instance_with_a_parked_step_can_be_cancelled(
    engine: Engine, evidence: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_on(monkeypatch, WorkDone, WorkFailed)
    await engine.publish(Flow("odd").step("odd", answer_odd).build())
    odd = await engine.start("odd", {"odd": True})
    await engine.drain(timeout=30)
    [letter] = await engine.dead_letters(odd.id)
    monkeypatch.undo()
    await engine.cancel(odd.id)
    await engine.drain(timeout=30)  # it was begun once, so whoever has a worker answers for it
    assert (await engine.get(odd.id)).status == "cancelled"
    with pytest.raises(Conflict, match="DEAD_LETTER_STALE"):
        await engine.requeue(letter.id)
    assert (await engine.discard_dead_letters([letter.id])).ids == [letter.id]


async def answer_odd(ctx: Context, data: Any) -> Any:
    return data


def break_on(monkeypatch: pytest.MonkeyPatch, *kinds: type) -> None:
    """A defect in the core that one value sets off."""
    real = batch.decide

    def broken(program: Program, instance: Instance, signal: Signal, facts: Facts) -> Decision:
        if isinstance(signal, kinds) and b"odd" in (
            getattr(signal, "raw", None) or getattr(signal, "input", None) or b""
        ):
            raise ZeroDivisionError("a defect")
        return real(program, instance, signal, facts)

    monkeypatch.setattr(batch, "decide", broken)
