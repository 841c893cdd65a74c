"""What is stored comes back as it was, and never grows without end. On a real database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Context, Engine, Flow, payloads
from holdfast.runtime.commit.options import Options
from running import until

pytestmark = pytest.mark.anyio

EDGES = [
    0, 1, -1, 2**53, 2**63 - 1, -(2**63), 1.0, 1e15, 1e16, -1e16, 1e18, 1e19, -1e19, 1e22, 1e23, 1.5e300, 1e308,
    1.7976931348623157e308, 5e-324, 1e-7, 0.1, 123456789012345680000.0,
]  # fmt: skip


def echo() -> Any:
    return Flow("echo").step("one", "same").step("two", "same").build()


async def test_numbers_pass_through_every_door_and_stay_what_they_are(engine: Engine) -> None:
    seen: list[Any] = []

    @engine.handler("same")
    async def same(ctx: Context, value: Any) -> Any:
        seen.append(value)
        return value

    await engine.publish(echo())
    sent = {"numbers": EDGES}
    async with engine.worker():
        started = await engine.start("echo", sent, key="numbers")
        done = await engine.wait(started.id, timeout=30)
        again = await engine.start("echo", sent, key="numbers")
    steps = await engine.steps(started.id)
    found = [done.data, *seen, *(step.input for step in steps if step.name in ("one", "two"))]
    assert {repr(one) for one in found} == {repr(sent)}
    assert again.id == started.id, "the same key with the same numbers is the same start"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False), max_size=8))
def test_any_number_comes_back_from_the_database_as_it_was(connection: psycopg.Connection, numbers: list[Any]) -> None:
    numbers = [number or abs(number) for number in numbers]  # the database has one zero
    row = connection.execute("select %s::jsonb::text", [payloads.encode(numbers, "x").decode()]).fetchone()
    assert row is not None
    assert repr(msgspec.json.decode(row[0])) == repr(numbers)


@pytest.fixture(scope="module")
def connection(holdfast_server: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(holdfast_server, autocommit=True) as connection:
        yield connection


async def test_a_workflow_that_grows_is_stopped_with_its_state_as_it_was(holdfast_dsn: str) -> None:
    async with Engine(holdfast_dsn, options=Options(max_context=100_000)) as engine:

        @engine.handler("grow")
        async def grow(ctx: Context, value: Any) -> Any:
            return {f"lap{len(value)}": "x" * 40_000}

        graph = {
            "name": "growing", "kind": "steps", "version": 1, "entry": "grow",
            "nodes": [
                {"id": "grow", "kind": "task", "handler": "grow"},
                {"id": "rest", "kind": "state"},
                {"id": "end", "kind": "end"},
            ],
            "edges": [
                {"id": "a", "source": "grow", "target": "rest"},
                {"id": "b", "source": "rest", "target": "grow", "on": "again"},
                {"id": "c", "source": "rest", "target": "end", "on": "enough"},
            ],
            "policy": {"on_error": "suspend", "data": "context", "keeps_error": True},
        }  # fmt: skip
        await engine.publish(graph)
        async with engine.worker():
            started = await engine.start("growing", {})
            for laps in (1, 2):
                await until(lambda laps=laps: _has(engine, started.id, laps))
                await engine.signal(started.id, "again")
            stopped = await until(lambda: _suspended(engine, started.id))
        assert stopped.data["_last_error"]["code"] == "CONTEXT_TOO_LARGE"
        assert sorted(stopped.data) == ["_last_error", "lap0", "lap1"]


async def _has(engine: Engine, id: str, laps: int) -> bool:
    instance = await engine.get(id)
    return len(instance.data) == laps and any(step.name == "rest" for step in await engine.steps(id))


async def _suspended(engine: Engine, id: str) -> Any:
    instance = await engine.get(id)
    return instance if instance.status == "suspended" else None
