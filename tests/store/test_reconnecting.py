"""A standing session: many callers share its flushes and nothing else, and what is refused is told with a remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from test_sessions import REFUSED, end_others

from holdfast import Engine, Flow
from holdfast.errors import StoreError
from holdfast.store.pg.reconnecting import MOST, StandingSession
from holdfast.store.pg.session import Query, Session
from holdfast.store.pg.statements import SQL, TEXTS
from running import Evidence

pytestmark = pytest.mark.anyio

CLOCK = SQL.read_clock.one()
TEXTS[b"test_end_yourself"] = b"select pg_terminate_backend(pg_backend_pid())"
TEXTS[b"test_write"] = b"create table public.test_written ()"
TEXTS[b"test_written"] = b"select to_regclass('public.test_written') is not null"


@pytest.fixture
async def standing(holdfast_dsn: str) -> AsyncIterator[StandingSession]:
    session = await StandingSession.open(holdfast_dsn)
    await session.once(CLOCK)  # prepared
    yield session
    await session.close()


@pytest.fixture
def flushes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many transactions went with each."""
    counted: list[int] = []
    each = Session.each

    async def observed(self: Session, transactions: Sequence[Sequence[Query]]) -> Any:
        counted.append(len(transactions))
        return await each(self, transactions)

    monkeypatch.setattr(Session, "each", observed)
    return counted


async def test_what_is_asked_meanwhile_goes_with_the_next_flush(standing: StandingSession, flushes: list[int]) -> None:
    first = asyncio.create_task(standing.once(CLOCK))
    while not flushes:
        await asyncio.sleep(0)
    answers = await asyncio.gather(*(standing.once(CLOCK) for _ in range(MOST + 3)), first)
    assert flushes == [1, MOST, 3]
    assert all(len(results) == 1 and results[0].ntuples == 1 for results in answers)


async def test_one_that_is_refused_does_not_harm_the_others(standing: StandingSession, flushes: list[int]) -> None:
    for _ in range(2):  # at first its statement is not prepared, then it goes with the others
        asked = [CLOCK, REFUSED, CLOCK, REFUSED, REFUSED, CLOCK]
        answers = await asyncio.gather(*map(standing.once, asked), return_exceptions=True)
        assert [isinstance(answer, StoreError) for answer in answers] == [query is REFUSED for query in asked]
        assert {answer.code for answer in answers if isinstance(answer, StoreError)} == {"STORE_REFUSED"}
    assert flushes == [6, 6]


async def test_what_stands_beside_a_refusal_is_committed(standing: StandingSession) -> None:
    written = Query(b"test_written", [])
    await asyncio.gather(standing.once(REFUSED), return_exceptions=True)
    await asyncio.gather(
        standing.once(CLOCK), standing.once(REFUSED), standing.once(Query(b"test_write", [])), return_exceptions=True
    )
    [result] = await standing.once(written)
    assert result.get_value(0, 0) == b"\x01"


async def test_whoever_gives_up_waiting_takes_nobody_along(standing: StandingSession, flushes: list[int]) -> None:
    asked = [asyncio.create_task(standing.once(CLOCK)) for _ in range(3)]
    await asyncio.sleep(0)
    asked[1].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, list) for answer in answers] == [True, False, True]
    assert not standing.broken
    assert len(flushes) == 1


async def test_a_lost_connection_is_replaced_for_all_of_them(standing: StandingSession, holdfast_dsn: str) -> None:
    end_others(holdfast_dsn)
    answers = await asyncio.gather(*(standing.once(CLOCK) for _ in range(5)))
    assert len(answers) == 5


async def test_one_that_costs_the_connection_does_not_cost_the_others_theirs(standing: StandingSession) -> None:
    deadly = Query(b"test_end_yourself", [])
    answers = await asyncio.gather(*map(standing.once, [CLOCK, deadly, CLOCK, CLOCK]), return_exceptions=True)
    assert [isinstance(answer, list) for answer in answers] == [True, False, True, True]
    assert isinstance(answers[1], StoreError)
    assert answers[1].code == "STORE_UNREACHABLE"


async def test_closing_answers_whoever_waits(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    standing, begun = await StandingSession.open(holdfast_dsn), asyncio.Event()

    async def endless(self: Session, transactions: Sequence[Sequence[Query]]) -> Any:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Session, "each", endless)
    waiting = [asyncio.create_task(standing.once(CLOCK))]
    await begun.wait()
    waiting.append(asyncio.create_task(standing.once(CLOCK)))
    await asyncio.sleep(0)
    await standing.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [answer.code for answer in answers if isinstance(answer, StoreError)] == ["ENGINE_CLOSED"] * 2


async def test_a_refusal_says_what_to_do(engine: Engine, evidence: Evidence) -> None:
    evidence.connection.execute("alter table holdfast.definitions add check (name <> 'unwanted') not valid")
    with pytest.raises(StoreError) as refusal:
        await engine.publish(Flow("unwanted").step("one", "one").build())
    assert (refusal.value.code, refusal.value.detail["sqlstate"]) == ("STORE_REFUSED", "23514")
    assert "holdfast doctor" in refusal.value.hint
