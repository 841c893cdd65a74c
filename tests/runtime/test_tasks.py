"""Human work on a running engine: the inbox, decisions, due times."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from task_office import ask, history
from test_replay_of_runs import check_all

from holdfast import Engine
from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound, Refused
from holdfast.runtime.commit import batch
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent


# --- the life of a task -----------------------------------------------------------------------------------------------


async def test_a_flow_waits_for_a_person_and_goes_on(office: Engine) -> None:
    task = await ask(office)
    assert (task.status, task.node, task.flow, task.priority) == ("open", "approve", "expense", 80)
    assert (task.roles, task.form, task.payload) == (["manager", "board"], {"type": "object"}, {"amount": 5})
    assert task.due_at is not None
    instance = await office.get(task.instance_id)
    assert (instance.status, instance.waiting_for, instance.waiting_until) == ("running", "task", task.due_at)

    decided = await office.decide(task.id, by="ann", decision="confirmed", comment="fine", data={"amount": 4})
    assert (decided.status, decided.decision, decided.decided_by) == ("completed", "confirmed", "ann")
    assert (decided.comment, decided.data) == ("fine", {"amount": 4})
    await office.drain(timeout=30)
    ended = await office.get(task.instance_id)
    assert (ended.status, ended.data) == ("completed", {"amount": 4})
    [step] = [s for s in await office.steps(task.instance_id) if s.name == "approve"]
    assert (step.status, step.closed_by, step.outcome) == ("confirmed", "ann", "confirmed")
    assert await history(office, task) == ["created", "completed"]
    assert "decision_made" in [e.type for e in await office.events(task.instance_id)]


async def test_a_rejection_ends_a_flow_that_does_not_say_more(office: Engine) -> None:
    task = await ask(office)
    await office.decide(task.id, by="ann", decision="rejected", comment="too much")
    instance = await office.get(task.instance_id)
    assert (instance.status, instance.reason) == ("aborted", "REJECTED")
    assert [s.status for s in await office.steps(task.instance_id)] == ["completed", "rejected"]


async def test_decisions_of_one_commit_look_for_their_tasks_at_once(
    office: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    tasks_to_lock = batch.tasks_to_lock

    def counted(ids: Any) -> Any:
        looks.append(len(ids))
        return tasks_to_lock(ids)

    monkeypatch.setattr(batch, "tasks_to_lock", counted)
    tasks = [await ask(office) for _ in range(20)]
    await asyncio.gather(*(office.decide(task.id, by="ann", decision="confirmed") for task in tasks))
    assert sum(looks) == 20
    assert len(looks) < 20


async def test_through_many_hands(office: Engine) -> None:
    task = await ask(office)
    assert (await office.assign(task.id, to="ann", by="boss")).status == "assigned"
    assert (await office.claim(task.id, by="ann")).status == "claimed"
    passed = await office.delegate(task.id, to="ben", by="ann", reason="holiday")
    assert (passed.status, passed.assignee) == ("assigned", "ben")
    assert (await office.claim(task.id, by="ben")).assignee == "ben"
    assert (await office.assign(task.id, to="cy", by="boss", reason="too slow")).assignee == "cy"
    freed = await office.release(task.id, by="cy")
    assert (freed.status, freed.assignee) == ("open", None)
    await office.claim(task.id, by="dee", roles=["board"])
    await office.decide(task.id, by="dee", decision="confirmed")
    events = await office.task_events(task.id)
    assert [(e.type, e.actor, e.assignee) for e in events] == [
        ("created", "system", None), ("assigned", "boss", "ann"), ("claimed", "ann", "ann"),
        ("delegated", "ann", "ben"), ("claimed", "ben", "ben"),
        ("reassigned", "boss", "cy"), ("released", "cy", None), ("claimed", "dee", "dee"),
        ("completed", "dee", "dee"),
    ]  # fmt: skip
    assert [e.ordinal for e in events] == list(range(1, 10))
    assert (events[3].reason, events[5].reason) == ("holiday", "too slow")
    assert events[-1].detail == {"decision": "confirmed", "comment": None}


async def test_what_is_asked_twice_happens_once(office: Engine) -> None:
    task = await ask(office)
    for _ in range(2):
        await office.assign(task.id, to="ann", by="boss")
    for _ in range(2):
        await office.claim(task.id, by="ann")
    for _ in range(2):
        await office.delegate(task.id, to="ben", by="ann")
    for _ in range(2):
        await office.release(task.id, by="ben")
    assert await history(office, task) == ["created", "assigned", "claimed", "delegated", "released"]


async def test_a_decision_with_an_id_counts_once(office: Engine) -> None:
    task, id = await ask(office), uuid4()
    for _ in range(3):
        decided = await office.decide(task.id, by="ann", decision="confirmed", comment="a", id=id)
        assert decided.decision == "confirmed"
    assert await history(office, task) == ["created", "completed"]
    with pytest.raises(Conflict, match="SIGNAL_ID_REUSED"):
        await office.decide(task.id, by="ann", decision="confirmed", comment="b", id=id)


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_an_unknown_task(office: Engine, holdfast_dsn: str) -> None:
    task = await ask(office)
    async with Engine(holdfast_dsn, org="other") as stranger:
        for engine, id in ((office, uuid4()), (stranger, task.id)):
            for act in (
                engine.task(id), engine.task_events(id), engine.claim(id, by="x"), engine.release(id, by="x"),
                engine.assign(id, to="y", by="x"), engine.delegate(id, to="y", by="x"),
                engine.decide(id, by="x", decision="confirmed"),
            ):  # fmt: skip
                with pytest.raises(NotFound, match="TASK_UNKNOWN"):
                    await act
        assert await stranger.tasks() == await stranger.tasks(task.instance_id) == []
    with pytest.raises(NotFound, match="ID_INVALID") as refusal:
        await office.task("nonsense")
    assert refusal.value.hint == "Ids are UUIDs, as the engine gave them."


async def test_what_somebody_has_nobody_else_decides(office: Engine) -> None:
    task = await ask(office)
    await office.claim(task.id, by="ann")
    with pytest.raises(Conflict, match=r"TASK_CLAIMED.*'ann'") as refusal:
        await office.decide(task.id, by="ben", decision="confirmed")
    assert refusal.value.detail["assignee"] == "ann"
    await office.assign(task.id, to="ben", by="boss")
    assert (await office.decide(task.id, by="ben", decision="confirmed")).decided_by == "ben"


async def test_roles(office: Engine) -> None:
    task = await ask(office)
    for roles in ([], ["clerk"], "manage"):
        with pytest.raises(Forbidden, match=r"TASK_ROLE_MISSING.*board, manager"):
            await office.claim(task.id, by="ann", roles=roles)
        with pytest.raises(Forbidden, match="TASK_ROLE_MISSING"):
            await office.decide(task.id, by="ann", decision="confirmed", roles=roles)
    assert (await office.claim(task.id, by="ann", roles="manager")).assignee == "ann"


async def test_conditions_read_the_roles_told_with_a_decision(office: Engine) -> None:
    flow: dict[str, Any] = {
        "name": "by_role",
        "entry": "ask",
        "nodes": [{"id": "ask", "kind": "human"}, {"id": "end", "kind": "end"}, {"id": "more", "kind": "end"}],
        "edges": [
            {"id": "paid", "source": "ask", "target": "end", "when": "actor.roles contains 'board'"},
            {"id": "asked", "source": "ask", "target": "more"},
        ],
        "variables": {"actor.roles": "list"},
    }
    await office.publish(flow)
    for roles, chosen in (("board", "paid"), (["manager"], "asked"), (None, "asked")):
        task = await ask(office, "by_role")
        await office.decide(task.id, by="ann", decision="confirmed", roles=roles)
        [step] = await office.steps(task.instance_id)
        assert step.chosen_edge_ids == [chosen]


async def test_twice_and_too_late(office: Engine) -> None:
    task = await ask(office)
    await office.decide(task.id, by="ann", decision="confirmed")
    for act in (
        office.decide(task.id, by="ben", decision="rejected"), office.claim(task.id, by="ben"),
        office.release(task.id, by="ann"), office.assign(task.id, to="ben", by="ann"),
    ):  # fmt: skip
        with pytest.raises(Conflict, match=r"TASK_OVER.*completed by 'ann'"):
            await act
    gone = await ask(office)
    await office.cancel(gone.instance_id, by="ops", reason="no more")
    with pytest.raises(Conflict, match=r"TASK_OVER.*cancelled") as refusal:
        await office.decide(gone.id, by="ann", decision="confirmed")
    assert refusal.value.detail["status"] == "cancelled"
    assert (await office.task(gone.id)).reason == "cancelled"


async def test_a_decision_the_step_does_not_offer(office: Engine) -> None:
    task = await ask(office, "review")
    with pytest.raises(Refused, match="DECISION_NOT_OFFERED"):
        await office.decide(task.id, by="ann", decision="aproved")
    assert (await office.task(task.id)).status == "open"


async def test_bad_arguments(office: Engine) -> None:
    task = await ask(office)
    for act in (
        office.claim(task.id, by=""), office.claim(task.id, by=None), office.claim(task.id, by=7),  # type: ignore[arg-type]
        office.claim(task.id, by="a\x00"), office.claim(task.id, by="x" * 2001),
        office.claim(task.id, by="a", roles=[7]),  # type: ignore[list-item]
        office.decide(task.id, by="ann", decision=""), office.decide(task.id, by="ann", decision="x" * 201),
        office.decide(task.id, by="ann", decision="confirmed", comment="\ud800"), office.assign(task.id, to="", by="a"),
    ):  # fmt: skip
        with pytest.raises(Refused, match="TEXT_INVALID"):
            await act
    with pytest.raises(HoldfastError, match="PAYLOAD"):
        await office.decide(task.id, by="ann", decision="confirmed", data={"n": float("nan")})
    assert await history(office, task) == ["created"]


# --- the inbox --------------------------------------------------------------------------------------------------------


async def test_inboxes(office: Engine) -> None:
    first, second, third = [await ask(office) for _ in range(3)]
    other = await ask(office, "review")
    await office.claim(first.id, by="ann")
    await office.assign(second.id, to="ben", by="boss")
    await office.decide(third.id, by="cy", decision="confirmed")

    async def ids(*args: Any, **filters: Any) -> set[str]:
        return {task.id for task in await office.tasks(*args, **filters)}

    assert await ids() == {first.id, second.id, other.id}
    assert await ids(role="manager") == await ids(role="board") == {first.id, second.id}
    assert await ids(role="clerk") == set()
    assert await ids(assignee="ann") == await ids(status="claimed") == {first.id}
    assert await ids(role="manager", assignee="ben") == await ids(status="assigned") == {second.id}
    assert await ids(status="open") == {other.id}
    assert await ids(status="completed") == {third.id}
    assert await ids(third.instance_id) == {third.id}
    assert await ids(third.instance_id, status="open") == set()
    assert await ids(first.instance_id, role="manager", assignee="ann") == {first.id}


async def test_an_inbox_has_pages_in_the_order_of_urgency(office: Engine) -> None:
    tasks = [await ask(office) for _ in range(5)]
    relaxed = await ask(office, "review")
    for filters in ({}, {"role": "manager"}, {"status": "open"}):
        seen: list[str] = []
        while page := await office.tasks(**filters, after=seen[-1] if seen else None, limit=2):
            seen += [task.id for task in page]
        expected = [task.id for task in tasks] + ([] if "role" in filters else [relaxed.id])
        assert seen == expected
    await office.decide(tasks[1].id, by="ann", decision="confirmed")  # a page may end at a task that is over by now
    assert [t.id for t in await office.tasks(after=tasks[1].id, limit=2)] == [tasks[2].id, tasks[3].id]


async def test_filters_that_make_no_sense(office: Engine) -> None:
    with pytest.raises(Refused, match="STATUS_UNKNOWN"):
        await office.tasks(status="asleep")
    with pytest.raises(Refused, match="TASK_FILTER_INVALID"):
        await office.tasks(status="completed", role="manager")
    for limit in (0, 1001):
        with pytest.raises(Refused, match="LIMIT_INVALID"):
            await office.tasks(limit=limit)
    with pytest.raises(NotFound, match="TASK_UNKNOWN"):
        await office.tasks(after=uuid4())


# --- time -------------------------------------------------------------------------------------------------------------


async def test_a_due_time_takes_the_timeout_edge(office: Engine) -> None:
    task = await ask(office, "review")
    await advance(office, seconds=59)
    await office.drain(timeout=30)
    assert (await office.task(task.id)).status == "open"
    await advance(office, seconds=2)
    await office.drain(timeout=30)
    late = await office.task(task.id)
    assert (late.status, late.reason, late.decided_by) == ("expired", "timeout", None)
    assert (await office.get(task.instance_id)).status == "completed"
    assert await history(office, task) == ["created", "expired"]
    with pytest.raises(Conflict, match=r"TASK_OVER.*expired"):
        await office.decide(task.id, by="ann", decision="approved")


async def test_without_a_timeout_edge_the_task_stays_open_and_is_known_as_late(office: Engine) -> None:
    task = await ask(office)
    await advance(office, hours=2)
    await office.drain(timeout=30)
    assert (await office.task(task.id)).status == "open"
    assert "task_overdue" in [e.type for e in await office.events(task.instance_id)]
    await office.decide(task.id, by="ann", decision="confirmed")
    await office.drain(timeout=30)
    assert (await office.get(task.instance_id)).status == "completed"


# --- what is written about it ----------------------------------------------------------------------------------------


def printed(dsn: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOLDFAST_DSN": dsn},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_prints_what_it_says(holdfast_dsn: str) -> None:
    page = (ROOT / "docs" / "tasks.md").read_text()
    script = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    [text] = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert printed(holdfast_dsn, "-c", script) == text


def test_the_example_runs(holdfast_dsn: str) -> None:
    text = printed(holdfast_dsn, str(ROOT / "examples" / "approval.py"))
    assert "has the task." in text
    assert "was too late" in text
    assert "The expense is completed; paid: True" in text


# --- replay -----------------------------------------------------------------------------------------------------------


async def test_replay_rebuilds_instances_with_tasks(office: Engine) -> None:
    tasks = [await ask(office, flow) for flow in ("review", "expense", "review", "expense", "review")]
    await office.decide(tasks[0].id, by="ann", decision="rejected", data={"why": "short"})
    await office.decide(tasks[1].id, by="ann", decision="rejected")
    await office.decide(tasks[2].id, by="ann", decision="approved")
    assert check_all(office) == 5
    await advance(office, hours=2)
    await office.drain(timeout=30)
    assert check_all(office) == 5
    assert [(await office.task(t.id)).status for t in tasks] == ["completed"] * 3 + ["open", "expired"]
