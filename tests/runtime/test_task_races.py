"""Tasks that many want at once: of all who claim, release and decide, one comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from task_office import ask, code_of, history

from holdfast import Engine
from holdfast.errors import Conflict
from holdfast.runtime.people.tasks import Tasks
from holdfast.runtime.races import Races
from holdfast.store.pg.reconnecting import StandingSession
from holdfast.store.tasks import Task
from holdfast.testing import advance
from running import until

pytestmark = pytest.mark.anyio

PEOPLE = 24


@pytest.fixture
async def people(office: Engine, holdfast_dsn: str) -> AsyncIterator[list[Tasks]]:
    """Each in a process of their own, as far as the database can tell."""
    async with AsyncExitStack() as stack:
        found: list[Tasks] = []
        for _ in range(PEOPLE):
            session = await StandingSession.open(holdfast_dsn)
            stack.push_async_callback(session.close)
            found.append(Tasks(session, office.org, Races(office.options.race_patience)))
        yield found


async def test_of_many_who_claim_one_task_exactly_one_gets_it(office: Engine, people: list[Tasks]) -> None:
    for _ in range(10):
        task = await ask(office)
        names = [f"p{number}" for number in range(len(people))]
        answers = await asyncio.gather(
            *(person.claim(task.id, name, None) for person, name in zip(people, names, strict=True)),
            return_exceptions=True,
        )
        winners = [a for a in answers if isinstance(a, Task)]
        refusals = [a for a in answers if isinstance(a, Conflict)]
        assert (len(winners), len(refusals)) == (1, PEOPLE - 1), answers
        holder = winners[0].assignee
        assert {(r.code, r.detail["assignee"]) for r in refusals} == {("TASK_CLAIMED", holder)}
        assert (await office.task(task.id)).assignee == holder
        assert await history(office, task) == ["created", "claimed"]


async def test_claims_and_releases_never_leave_two_holders(office: Engine, people: list[Tasks]) -> None:
    task = await ask(office)
    held = 0

    async def grab(person: Tasks, name: str) -> int:
        nonlocal held
        taken = 0
        for _ in range(6):
            if await code_of(person.claim(task.id, name, None)) != "done":
                continue
            held += 1
            assert held == 1, "two people have it"
            taken += 1
            await asyncio.sleep(0)
            held -= 1
            await person.release(task.id, name)
        return taken

    taken = await asyncio.gather(*(grab(person, f"p{n}") for n, person in enumerate(people)))
    events = await history(office, task)
    assert sum(taken) >= 1
    assert events == ["created", *["claimed", "released"] * sum(taken)]


async def test_of_a_claim_and_a_decision_one_comes_first(office: Engine, people: list[Tasks]) -> None:
    outcomes: set[tuple[str, str]] = set()
    for n in range(20):
        task = await ask(office)

        async def late(act: Any, wait: bool) -> str:
            await asyncio.sleep(0.002 if wait else 0)
            return await code_of(act)

        decide = office.decide(task.id, by="ann", decision="confirmed")
        decided, claimed = await asyncio.gather(
            late(decide, n % 2 == 0), late(people[0].claim(task.id, "ben", None), False)
        )
        outcomes.add((decided, claimed))
        ended = await office.task(task.id)
        if decided == "done":
            # Ben may have been told that it is his only if it was decided by him.
            assert (ended.status, claimed) == ("completed", "TASK_OVER"), outcomes
        else:
            assert (decided, claimed, ended.assignee, ended.status) == ("TASK_CLAIMED", "done", "ben", "claimed")
    assert outcomes <= {("done", "TASK_OVER"), ("TASK_CLAIMED", "done")}


async def test_of_many_decisions_one_counts(office: Engine) -> None:
    for _ in range(10):
        task = await ask(office, "review")
        names = ["approved", "rejected"] * 4
        codes = await asyncio.gather(
            *(code_of(office.decide(task.id, by=f"p{n}", decision=name)) for n, name in enumerate(names))
        )
        assert sorted(set(codes)) == ["TASK_OVER", "done"]
        assert codes.count("done") == 1
        ended = await office.task(task.id)
        assert (ended.decided_by, ended.decision) == (f"p{codes.index('done')}", names[codes.index("done")])
        assert await history(office, task) == ["created", "completed"]


async def test_of_a_decision_and_a_timeout_one_wins(office: Engine) -> None:
    async with office.worker():
        for _ in range(15):
            instance = await office.start("review", {})

            async def opened(id: str = instance.id) -> list[Task]:
                return await office.tasks(id)

            [task] = await until(opened)
            _, code = await asyncio.gather(
                advance(office, seconds=61), code_of(office.decide(task.id, by="ann", decision="approved"))
            )
            ended = await office.wait(instance.id, timeout=20)
            task = await office.task(task.id)
            assert ended.status == "completed"
            assert (task.status, code) in {("completed", "done"), ("expired", "TASK_OVER")}
