"""Decisions in the caller's own transaction: they count when it commits."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from task_office import ask, history

from holdfast import Engine
from holdfast.errors import Conflict, Forbidden
from running import Evidence

pytestmark = pytest.mark.anyio


async def test_a_decision_in_the_callers_transaction(office: Engine, holdfast_dsn: str) -> None:
    task = await ask(office)
    async with await psycopg.AsyncConnection.connect(holdfast_dsn) as conn:
        await office.decide(task.id, by="ann", decision="confirmed", comment="fine", data={"n": 1}, conn=conn)
        await conn.rollback()
        await office.drain(timeout=30)
        assert (await office.task(task.id)).status == "open"
        sent = await office.decide(task.id, by="ann", decision="confirmed", comment="fine", data={"n": 1}, conn=conn)
        assert sent.status == "open"  # it counts when it is committed and a worker has applied it
        await conn.commit()
    await office.drain(timeout=30)
    decided = await office.task(task.id)
    assert (decided.decision, decided.decided_by, decided.comment, decided.data) == (
        "confirmed",
        "ann",
        "fine",
        {"n": 1},
    )
    assert (await office.get(task.instance_id)).status == "completed"


async def test_the_same_id_over_both_ways_is_one_decision(office: Engine, holdfast_dsn: str) -> None:
    task, id = await ask(office), uuid4()
    async with await psycopg.AsyncConnection.connect(holdfast_dsn, autocommit=True) as conn:
        for _ in range(2):
            await office.decide(task.id, by="ann", decision="confirmed", data={"n": 1.5}, id=id, conn=conn)
        await office.drain(timeout=30)
        await office.decide(task.id, by="ann", decision="confirmed", data={"n": 1.5}, id=id)
        with pytest.raises(Conflict, match="SIGNAL_ID_REUSED"):
            await office.decide(task.id, by="ann", decision="rejected", id=id, conn=conn)
    assert await history(office, task) == ["created", "completed"]


async def test_what_is_refused_in_the_callers_transaction(office: Engine, holdfast_dsn: str) -> None:
    task, done = await ask(office), await ask(office)
    await office.claim(task.id, by="ben")
    await office.decide(done.id, by="ann", decision="confirmed")
    async with await psycopg.AsyncConnection.connect(holdfast_dsn, autocommit=True) as conn:
        with pytest.raises(Conflict, match=r"TASK_CLAIMED.*ben"):
            await office.decide(task.id, by="ann", decision="confirmed", conn=conn)
        with pytest.raises(Conflict, match=r"TASK_OVER.*completed by ann"):
            await office.decide(done.id, by="ann", decision="confirmed", conn=conn)
        with pytest.raises(psycopg.Error, match="There is no task"):
            await conn.execute("select holdfast.decide(%s, 'confirmed')", [uuid4()])


async def test_roles_capabilities_and_version_count_there_too(office: Engine, holdfast_dsn: str) -> None:
    guarded = {
        "name": "guarded",
        "entry": "ask",
        "nodes": [{"id": "ask", "kind": "human", "capabilities": ["pay"]}, {"id": "end", "kind": "end"}],
        "edges": [
            {"id": "yes", "source": "ask", "target": "end", "on": "confirmed", "when": "actor.roles contains 'board'"}
        ],
        "variables": {"actor.roles": "list"},
    }
    await office.publish(guarded)
    task, other = await ask(office), await ask(office, "guarded")
    stands_at = (await office.get(other.instance_id)).version
    async with await psycopg.AsyncConnection.connect(holdfast_dsn, autocommit=True) as conn:
        with pytest.raises(Forbidden, match="TASK_ROLE_MISSING"):
            await office.decide(task.id, by="eve", decision="confirmed", roles=["intern"], conn=conn)
        with pytest.raises(Conflict, match="VERSION_CONFLICT"):
            await office.decide(other.id, by="ann", decision="confirmed", if_version=stands_at + 1, conn=conn)
        await office.decide(task.id, by="ann", decision="confirmed", roles=["manager"], conn=conn)
        await office.decide(
            other.id, by="ann", decision="confirmed", capabilities="pay", roles="board", if_version=stands_at, conn=conn
        )
    await office.drain(timeout=30)
    assert [(await office.task(one.id)).status for one in (task, other)] == ["completed", "completed"]
    assert await office.dead_letters() == []


async def test_a_sent_decision_that_came_too_late_is_kept_as_a_dead_letter(office: Engine, evidence: Evidence) -> None:
    task = await ask(office)
    evidence.ask("select holdfast.decide(%s, 'confirmed', by => 'ann')::text", task.id)
    await office.claim(task.id, by="ben")
    await office.drain(timeout=30)
    assert (await office.task(task.id)).assignee == "ben"
    assert evidence.rows("select reason from holdfast.dead_letters") == [("TASK_CLAIMED",)]
