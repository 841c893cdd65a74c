"""3.1, 3.2 and 4.4: a trigger ensures the instance, moves it and tells of it in one commit, and is answered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from orders import BLUEPRINT, GATES, answer, deliveries, due, office, register, rows

from holdfast import Engine, Machine
from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound, Refused

pytestmark = pytest.mark.anyio

GUARDED: dict[str, Any] = {
    **BLUEPRINT,
    "transitions": [{**t, "guard": "check"} if t["event"] == 1001 else t for t in BLUEPRINT["transitions"]],
}


async def test_the_first_trigger_makes_the_instance_and_moves_it(engine: Engine) -> None:
    await office(engine)
    done = await engine.trigger("prod", "order", "O-1", 1001, {"n": 1}, by="ann")
    assert (done.applied, done.reason, done.from_state, done.to_state) == (True, None, "New", "Checked")
    assert (done.event, done.lifecycle) == ("Check", 1)
    stands = await engine.machine("prod", "order", "O-1")
    assert (stands.id, stands.state, stands.last_event, stands.data) == (done.instance, "Checked", "Check", {"n": 1})
    assert (stands.external_ref, stands.open_acks, stands.blocked_by) == ("O-1", 1, [])


async def test_an_event_is_named_by_its_name_or_its_code(engine: Engine) -> None:
    await office(engine)
    assert (await engine.trigger("prod", "order", "O-1", "Check")).event == "Check"
    assert (await engine.trigger("prod", "order", "O-2", 1001)).event == "Check"
    assert (await engine.trigger("prod", "order", "O-3", "1001")).event == "Check"


async def test_a_trigger_that_does_not_apply_is_an_answer_and_the_instance_stays(engine: Engine) -> None:
    await office(engine)
    first = await engine.trigger("prod", "order", "O-1", "Ship")
    assert (first.applied, first.reason, first.from_state, first.to_state) == (False, "not_applicable", "New", None)
    assert (await engine.machine("prod", "order", "O-1")).state == "New"
    assert (await engine.trigger("prod", "order", "O-1", "Check", expected=7)).reason == "overtaken"
    assert (await engine.trigger("prod", "order", "O-1", "Check", expected=first.lifecycle)).applied


async def test_what_is_over_and_what_is_suspended_answer_so(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        done = await engine.trigger("prod", "order", "O-1", event)
    assert (await engine.trigger("prod", "order", "O-1", "Check")).reason == "terminal"
    assert (await engine.get(done.instance)).status == "completed"
    other = await engine.trigger("prod", "order", "O-2", "Check")
    await engine.suspend(other.instance)
    assert (await engine.trigger("prod", "order", "O-2", "Pack")).reason == "not_active"
    await engine.resume(other.instance)
    assert (await engine.trigger("prod", "order", "O-2", "Pack")).applied


async def test_without_a_consumer_of_transitions_nothing_is_stored(engine: Engine) -> None:
    await engine.import_machine(Machine.load(BLUEPRINT))
    register(engine.dsn, "hooks", takes_transitions=False)
    register(engine.dsn, "elsewhere", environment="test")
    register(engine.dsn, "others", definitions=["invoice"])
    register(engine.dsn, "strangers", org_id="acme")
    with pytest.raises(Refused) as caught:
        await engine.trigger("prod", "order", "O-1", "Check")
    assert caught.value.code == "CONSUMER_MISSING"
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(0,)]
    register(engine.dsn, "ledger")
    assert (await engine.trigger("prod", "order", "O-1", "Check")).applied


async def test_one_that_lost_its_last_consumer_is_refused_too(engine: Engine) -> None:
    await office(engine)
    await engine.trigger("prod", "order", "O-1", "Check")
    with psycopg.connect(engine.dsn) as db:
        db.execute("update holdfast.consumers set removed_at = now()")
    with pytest.raises(Refused) as caught:
        await engine.trigger("prod", "order", "O-1", "Pack")
    assert caught.value.code == "CONSUMER_MISSING"


async def test_the_same_request_gets_the_same_answer(engine: Engine) -> None:
    await office(engine)
    first = await engine.trigger("prod", "order", "O-1", "Check", {"n": 1}, request_id="r-1")
    refused = await engine.trigger("prod", "order", "O-1", "Ship", request_id="r-2")
    await engine.trigger("prod", "order", "O-1", "Pack")
    assert await engine.trigger("prod", "order", "O-1", "Check", {"n": 1}, request_id="r-1") == first
    assert await engine.trigger("prod", "order", "O-1", "Ship", request_id="r-2") == refused
    assert await engine.trigger_answer("prod", "order", "O-1", "r-2") == refused
    assert await engine.trigger_answer("prod", "order", "O-1", "r-9") is None
    with pytest.raises(Conflict) as caught:
        await engine.trigger("prod", "order", "O-1", "Check", {"n": 2}, request_id="r-1")
    assert caught.value.code == "SIGNAL_ID_REUSED"


async def test_callers_at_once_with_one_request_get_one_answer(engine: Engine) -> None:
    await office(engine)
    answers = await asyncio.gather(
        *(engine.trigger("prod", "order", "O-1", "Check", request_id="same") for _ in range(16))
    )
    assert len({repr(one) for one in answers}) == 1
    assert len(deliveries(engine.dsn)) == 1


async def test_of_conflicting_events_at_once_one_applies(engine: Engine) -> None:
    await office(engine)
    answers = await asyncio.gather(*(engine.trigger("prod", "order", "O-1", "Check") for _ in range(16)))
    assert sorted(one.reason or "" for one in answers) == ["", *["not_applicable"] * 15]
    assert len({one.instance for one in answers}) == 1


async def test_a_request_of_an_instance_that_is_over_is_still_known(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack"):
        await engine.trigger("prod", "order", "O-1", event)
    last = await engine.trigger("prod", "order", "O-1", "Ship", request_id="last")
    await engine.import_machine(Machine.load({**BLUEPRINT, "version": 2}))
    assert await engine.trigger("prod", "order", "O-1", "Ship", request_id="last") == last
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(1,)]


async def test_a_new_blueprint_begins_anew_what_is_over_and_finds_what_is_open(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        over = await engine.trigger("prod", "order", "O-1", event)
    still = await engine.trigger("prod", "order", "O-2", "Check")
    await engine.import_machine(Machine.load({**BLUEPRINT, "version": 2}))
    assert (await engine.trigger("prod", "order", "O-1", "Check")).instance != over.instance
    assert (await engine.trigger("prod", "order", "O-2", "Pack")).instance == still.instance
    assert (await engine.machine("prod", "order", "O-2")).flow_version == 1


async def test_a_policy_makes_no_new_instance(engine: Engine) -> None:
    """6.2: the policy is attached when the instance begins, and never changes for it."""
    await office(engine)
    old = await engine.trigger("prod", "order", "O-1", "Check")
    published = await engine.import_machine(policy=GATES)
    assert (published.version, published.new) == (2, True)
    assert (await engine.trigger("prod", "order", "O-1", "Back")).instance == old.instance
    again = await engine.trigger("prod", "order", "O-1", "Check")
    assert again.applied
    assert (await engine.machine("prod", "order", "O-1")).blocked_by == []
    await engine.trigger("prod", "order", "O-2", "Check")
    assert (await engine.machine("prod", "order", "O-2")).blocked_by == ["CHECK.CREDIT"]


async def test_what_happened_before_is_told_with_its_moment(engine: Engine) -> None:
    await office(engine)
    moment = datetime.now(UTC) - timedelta(days=3)
    await engine.trigger("prod", "order", "O-1", "Check", occurred_at=moment)
    [fact] = deliveries(engine.dsn)
    assert datetime.fromisoformat(fact.body["occurred_at"]) == moment


async def test_guards_are_checked_and_the_instance_stays(engine: Engine) -> None:
    await engine.import_machine(Machine.load(GUARDED))
    register(engine.dsn, "ledger")
    with pytest.raises(Forbidden):
        await engine.trigger("prod", "order", "O-1", "Check")
    assert (await engine.machine("prod", "order", "O-1")).state == "New"
    assert (await engine.trigger("prod", "order", "O-1", "Check", capabilities=["check"])).applied


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("prod", "order", "", "Check"), "KEY_INVALID"),
        (("prod", "order", "x" * 501, "Check"), "KEY_INVALID"),
        (("prod", "order", "a\0b", "Check"), "KEY_INVALID"),
        (("pr.od", "order", "O-1", "Check"), "ENVIRONMENT_INVALID"),
        (("prod", "order", "O-1", True), "EVENT_UNKNOWN"),
        (("prod", "order", "O-1", "Fly"), "EVENT_UNKNOWN"),
        (("prod", "order", "O-1", 7), "EVENT_UNKNOWN"),
        (("prod", "order", "O-1", "Check", float("nan")), "PAYLOAD_NOT_FINITE"),
    ],
)
async def test_nonsense_is_refused_before_anything_is_stored(
    engine: Engine, arguments: tuple[Any, ...], code: str
) -> None:
    await office(engine)
    with pytest.raises(HoldfastError) as caught:
        await engine.trigger(*arguments)
    assert getattr(caught.value, "code", None) == code
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(0,)]


async def test_an_unknown_machine_and_an_unknown_blueprint(engine: Engine) -> None:
    await office(engine)
    for definition, version, code in (("invoice", None, "FLOW_UNKNOWN"), ("order", 9, "VERSION_UNKNOWN")):
        with pytest.raises(NotFound) as caught:
            await engine.trigger("prod", definition, "O-1", "Check", version=version)
        assert caught.value.code == code


async def test_in_the_callers_transaction_nothing_is_decided_before_the_commit(engine: Engine) -> None:
    await office(engine)
    with psycopg.connect(engine.dsn) as connection:
        sent = await engine.trigger("prod", "order", "O-1", "Check", request_id="r-1", conn=connection)
        assert sent.applied is None
        await engine.trigger("prod", "order", "O-1", "Ship", request_id="r-2", conn=connection)
        assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(0,)]
    await engine.drain(timeout=30)
    first, second = [await engine.trigger_answer("prod", "order", "O-1", id) for id in ("r-1", "r-2")]
    assert first is not None
    assert second is not None
    assert (first.applied, first.to_state, first.instance) == (True, "Checked", sent.instance)
    assert (second.applied, second.reason) == (False, "not_applicable")
    assert rows(engine.dsn, "select count(*) from holdfast.dead_letters") == [(0,)]
    with psycopg.connect(engine.dsn) as connection:
        await engine.trigger("prod", "order", "O-9", "Check", conn=connection)
        connection.rollback()
    await engine.drain(timeout=30)
    assert rows(engine.dsn, "select count(*) from holdfast.instances") == [(1,)]


async def test_from_sql(engine: Engine) -> None:
    await office(engine)
    with psycopg.connect(engine.dsn, autocommit=True) as db:
        trigger = "select holdfast.trigger('prod', 'order', 'O-1', '1001', %s, request_id => 'r-1', by => 'ann')"
        ids = {db.execute(trigger, ['{"n": 1}']).fetchone() for _ in range(2)}
        await engine.drain(timeout=30)
        assert {db.execute(trigger, ['{"n": 1}']).fetchone()} == ids
        with pytest.raises(psycopg.Error, match="other content") as caught:
            db.execute(trigger, ['{"n": 2}'])
        assert caught.value.sqlstate == "HF409"
        told = db.execute("select holdfast.trigger_answer('prod', 'order', 'O-1', 'r-1')").fetchone()
    assert told is not None
    assert told[0]["applied"] is True
    assert (await engine.machine("prod", "order", "O-1")).data == {"n": 1}


async def test_every_fact_has_a_record_for_every_consumer_that_takes_it(engine: Engine) -> None:
    """5.5: alive or not; 5.11: what a consumer takes is its own affair."""
    await office(engine, GATES, consumers=())
    register(engine.dsn, "all")
    register(engine.dsn, "transitions", takes_hooks=False)
    register(engine.dsn, "hooks", takes_transitions=False)
    register(engine.dsn, "one hook", hooks=["CHECK.STOCK"], takes_transitions=False)
    register(engine.dsn, "packed", states=["Packed"], takes_hooks=False)
    register(engine.dsn, "checks", events=["Check"], takes_hooks=False)
    await engine.trigger("prod", "order", "O-1", "Check")
    found = {
        name: [d.what for d in deliveries(engine.dsn, name)]
        for name in ("all", "transitions", "hooks", "one hook", "packed", "checks")
    }
    assert found == {
        "all": ["→ Checked", "CHECK.CREDIT"], "transitions": ["→ Checked"], "hooks": ["CHECK.CREDIT"], "one hook": [],
        "packed": [], "checks": ["→ Checked"],
    }  # fmt: skip


async def test_facts_of_one_instance_are_due_one_after_the_other(engine: Engine) -> None:
    """5.8: per consumer and instance nothing is sent while something earlier is open."""
    await office(engine)
    for ref in ("O-1", "O-2"):
        for event in ("Check", "Remind", "Pack"):
            await engine.trigger("prod", "order", ref, event)
    assert due(engine.dsn, ref="O-1") == ["→ Checked"]
    assert due(engine.dsn, ref="O-2") == ["→ Checked"]
    for what in ("→ Checked", "→ Checked", "→ Packed"):
        [head] = [d for d in deliveries(engine.dsn, ref="O-1") if d.is_due]
        assert head.what == what
        await engine.ack("prod", "ledger", head.ack, "processed")
    assert due(engine.dsn, ref="O-1") == []
    assert due(engine.dsn, ref="O-2") == ["→ Checked"]


async def test_the_fact_of_the_last_transition_is_told_after_the_end(engine: Engine) -> None:
    await office(engine)
    for event in ("Check", "Pack", "Ship"):
        await engine.trigger("prod", "order", "O-1", event)
    for what in ("→ Checked", "→ Packed", "→ Shipped"):
        await answer(engine, what)
    assert (await engine.machine("prod", "order", "O-1")).open_acks == 0


async def test_a_trigger_out_of_a_transaction_that_cannot_be_decided_is_told_and_kept(engine: Engine) -> None:
    await engine.import_machine(Machine.load(GUARDED))
    register(engine.dsn, "ledger")
    with psycopg.connect(engine.dsn, autocommit=True) as db:
        db.execute("select holdfast.trigger('prod', 'order', 'O-1', 'Check', by => 'ann')")
    await engine.drain(timeout=30)
    [notice] = (await engine.notices()).items
    assert (notice.code, notice.kind, notice.detail["code"]) == ("TRIGGER_ERROR", "error", "GUARD_REFUSED")
    assert rows(engine.dsn, "select source, reason from holdfast.dead_letters") == [("signal", "GUARD_REFUSED")]
    assert (await engine.machine("prod", "order", "O-1")).state == "New"
