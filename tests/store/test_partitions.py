"""Statements of one month: what they name, when they are taken, and that they write the same."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from holdfast import DoNotRetry, Engine, Flow, Undo
from holdfast.core.model.timestamps import from_datetime
from holdfast.store.pg.partitions import MONTHLY, Month, Months, suited
from holdfast.store.pg.session import DatabaseError, Session
from holdfast.store.pg.statements import SQL, Statement
from holdfast.testing import advance

pytestmark = pytest.mark.anyio

NOVEMBER = Month.named("202611")
DAY = 86_400_000_000


def test_a_month_lasts_from_its_first_moment_to_the_next_ones() -> None:
    assert NOVEMBER.first == from_datetime(datetime(2026, 11, 1, tzinfo=UTC))
    assert Month.named("202612").next == from_datetime(datetime(2027, 1, 1, tzinfo=UTC))
    assert NOVEMBER.has_all([NOVEMBER.first, NOVEMBER.next - 1])
    assert not NOVEMBER.has_all([NOVEMBER.first, NOVEMBER.next])
    assert not NOVEMBER.has_all([NOVEMBER.first - 1])


@pytest.mark.parametrize("name", [*MONTHLY, "begin_rollbacks"])
def test_a_statement_of_a_month_names_its_partitions_and_differs_in_nothing_else(name: str) -> None:
    statement = SQL.all[name]
    named = statement.in_month("202611").sql.decode()
    assert named.replace("holdfast.steps_202611", "holdfast.steps").replace(
        "holdfast.events_202611", "holdfast.events"
    ) == (statement.sql.decode())
    assert "_202611" in named
    assert not re.search(r"holdfast\.(steps|events)(?!_202611)", named)
    assert "holdfast.step_receipts_" not in named
    assert statement.in_month("202611") is statement.in_month("202611")
    assert statement.name == name.encode(), "the statement itself stays as it is"


@pytest.mark.parametrize("name", MONTHLY)
def test_the_columns_that_say_where_a_step_lies_are_moments(name: str) -> None:
    """By the names the statement gives its columns, and none of them is left out."""
    text = SQL.all[name].sql.decode()
    lists = re.findall(r"unnest\(([^)]*)\)\s+as \w+\(([^)]*)\)", text)
    assert lists
    moments = {
        int(number) - 1
        for parameters, columns in lists
        for (number, kind), column in zip(re.findall(r"\$(\d+)::([a-z]+)", parameters), columns.split(","), strict=True)
        if kind == "timestamptz" and column.strip() != "ripe_at"
    }
    assert set(MONTHLY[name]) == moments


def _row(statement: Statement, at: int, places: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(at if n in places else None for n in range(len(statement._columns)))


@pytest.mark.parametrize("name", [name for name, places in MONTHLY.items() if places])
def test_a_batch_that_reaches_into_another_month_takes_the_whole_table(name: str) -> None:
    statement, places = SQL.all[name], MONTHLY[name]
    inside = _row(statement, NOVEMBER.first + DAY, places)
    assert suited(name, [inside], NOVEMBER) is statement.in_month("202611")
    assert suited(name, [inside], None) is statement
    for place in places:
        outside = tuple(NOVEMBER.first - DAY if n == place else value for n, value in enumerate(inside))
        assert suited(name, [inside, outside], NOVEMBER) is statement


def test_other_statements_have_no_months() -> None:
    assert suited("insert_work", [], NOVEMBER) is SQL.insert_work


async def test_the_months_that_exist_are_found_and_only_they(holdfast_dsn: str) -> None:
    session, months = await Session.open(holdfast_dsn), Months()
    now = from_datetime(datetime.now(UTC))
    assert months.at(now) is None
    await months.look(session, now)
    month = months.at(now)
    assert month is not None
    assert month.name == f"{datetime.now(UTC):%Y%m}"
    assert months.at(now - 400 * DAY) is None
    assert months.at(now + 400 * DAY) is None
    await session.close()


def _blame(sqlstate: str, statement: str) -> DatabaseError:
    return DatabaseError(sqlstate, "no", statement)


async def test_a_month_that_is_gone_is_forgotten_and_anything_else_is_not_its_fault(holdfast_dsn: str) -> None:
    session, months = await Session.open(holdfast_dsn), Months()
    now = from_datetime(datetime.now(UTC))
    await months.look(session, now)
    for other in (_blame("42P01", "advance_steps"), _blame("23505", "advance_steps@202611"), ValueError("no")):
        assert not months.are_to_blame(other)
    assert months.at(now) is not None
    assert months.are_to_blame(_blame("42P01", "advance_steps@202611"))
    assert months.at(now) is None
    await months.look(session, now)
    assert months.at(now) is None, "nobody asks again at once"
    await session.close()


async def refuse(ctx: Any, data: Any) -> Any:
    raise DoNotRetry("as it should be")


def _flow(name: str, last: str) -> Any:
    flow = Flow(name).step("a", "work", undo=Undo("work", name="una")).step("b", "work", undo=Undo("work", name="unb"))
    return flow.step("c", last, undo=Undo("work", name="unc")).build()


def _statuses(dsn: str, id: Any) -> list[tuple[str, str, str]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "select (select relname::text from pg_class where oid = s.tableoid), node, status"
            " from holdfast.steps s where instance_id = %s order by opened_version, opened_ordinal",
            (id,),
        ).fetchall()


async def _there_and_back(engine: Engine) -> tuple[Any, Any]:
    done = await engine.wait((await engine.start("done", {})).id, timeout=20)
    broken = await engine.wait((await engine.start("broken", {})).id, timeout=20)
    assert (done.status, broken.status) == ("completed", "failed")
    return done.id, broken.id


async def test_a_step_is_written_the_same_by_name_and_through_the_whole_table(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn) as engine:
        engine.register("work", lambda ctx, data: data)
        engine.register("refuse", refuse)
        await engine.publish(_flow("done", "work"))
        await engine.publish(_flow("broken", "refuse"))
        async with engine.worker():
            await _there_and_back(engine)  # from here on the months are known
            committer = engine.committer
            assert committer.months._known
            by_name = await _there_and_back(engine)
            committer.months = Months()
            committer.months._asked_at = float("inf")
            through_the_table = await _there_and_back(engine)
    for named, whole in zip(by_name, through_the_table, strict=True):
        assert _statuses(holdfast_dsn, named) == _statuses(holdfast_dsn, whole)


async def test_a_partition_that_vanishes_costs_a_try_and_nothing_else(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn) as engine:
        engine.register("work", lambda ctx, data: data)
        engine.register("refuse", refuse)
        await engine.publish(_flow("done", "work"))
        await engine.publish(_flow("broken", "refuse"))
        async with engine.worker():
            await _there_and_back(engine)
            assert engine.committer.months._known
            month = f"{datetime.now(UTC):%Y%m}"
            with psycopg.connect(holdfast_dsn, autocommit=True) as admin:
                for table in ("steps", "events"):
                    admin.execute(f"alter table holdfast.{table} detach partition holdfast.{table}_{month}")
                    admin.execute(f"alter table holdfast.{table}_{month} rename to {table}_aside")
            done, _ = await _there_and_back(engine)
            assert engine.committer.months._known == ()
    assert {table for table, _, _ in _statuses(holdfast_dsn, done)} == {"steps_default"}


async def test_steps_opened_in_a_month_are_closed_in_the_next(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn) as engine:
        engine.register("work", lambda ctx, data: data)
        await engine.publish(Flow("over").step("a", "work").sleep("pause", 40 * 86_400).step("b", "work").build())
        id = (await engine.start("over", {})).id
        await engine.drain(timeout=20)
        await advance(engine, days=41)
        await engine.drain(timeout=20)
        assert (await engine.get(id)).status == "completed"
    assert len({table for table, _, _ in _statuses(holdfast_dsn, id)}) == 2
