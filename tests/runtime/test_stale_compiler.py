"""A definition of an earlier compiler starts nothing new, however it is asked; what runs on it runs on (WF-07)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import psycopg
import pytest

from holdfast import Engine, Flow
from holdfast.errors import DefinitionError
from holdfast.graph import compile as compiling
from holdfast.graph import compiled
from holdfast.store.caller_transaction import BorrowedVerbs
from running import Evidence

pytestmark = pytest.mark.anyio

APPROVAL = {
    "name": "approval",
    "kind": "saga",
    "version": 1,
    "entry": "ask",
    "nodes": [{"id": "ask", "kind": "human"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "yes", "source": "ask", "target": "end", "on": "approved"}],
}


class Approval(msgspec.Struct):
    """The old definition, as a process has it in mind that never asked which compiler made it."""

    name: str = "approval"
    version: int = 1


STALE = "WORKFLOW_COMPILER_STALE"


@pytest.fixture
async def resting(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Instances that rest on a definition which the release before this one compiled."""
    with monkeypatch.context() as before:
        for module in (compiling, compiled):
            before.setattr(module, "COMPILER_VERSION", "0")
        async with Engine(holdfast_dsn) as engine:
            await engine.publish(APPROVAL)
            started = [await engine.start("approval") for _ in range(2)]
            async with engine.worker():
                await engine.drain()
    return [instance.id for instance in started]


@pytest.fixture
async def engine(holdfast_dsn: str, resting: list[str]) -> AsyncIterator[Engine]:
    """The release after it, in a process that has run an instance of the old definition."""
    async with Engine(holdfast_dsn) as engine, engine.worker():
        await engine.signal(resting[0], "approved")
        await engine.drain()
        assert (await engine.get(resting[0])).status == "completed"
        yield engine


def start_in_sql(dsn: str) -> Any:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select holdfast.start('approval')").fetchone()


async def test_every_start_is_refused_and_what_runs_goes_on(
    engine: Engine, resting: list[str], evidence: Evidence
) -> None:
    for start in (
        lambda: engine.start("approval"),
        lambda: engine.start("approval", version=1),
        lambda: engine.start("approval", key="k"),
        lambda: engine.start_many("approval", [{}, {}]),
    ):
        with pytest.raises(DefinitionError) as refusal:
            await start()
        assert refusal.value.code == STALE
    assert evidence.ask("select count(*) from holdfast.instances") == 2
    await engine.signal(resting[1], "approved")
    await engine.drain()
    assert (await engine.get(resting[1])).status == "completed"


async def test_a_start_in_the_callers_transaction_is_refused(engine: Engine) -> None:
    async with await psycopg.AsyncConnection.connect(engine.dsn) as conn:
        with pytest.raises(DefinitionError) as refusal:
            await engine.start("approval", conn=conn)
        assert refusal.value.code == STALE
        with pytest.raises(DefinitionError) as refusal:  # by the database itself, whatever the caller's process knew
            await BorrowedVerbs(engine.org).start(conn, Approval(), b"{}", None, None, None)
        assert refusal.value.code == STALE
        assert refusal.value.hint
        await conn.rollback()
    with pytest.raises(psycopg.Error, match="compiler 0, this is compiler 1") as refused:
        start_in_sql(engine.dsn)
    assert refused.value.sqlstate == "HF422"


async def test_a_sub_flow_is_a_start(engine: Engine) -> None:
    await engine.publish(Flow("outer").sub_flow("inner", "approval").build())
    outer = await engine.start("outer")
    await engine.drain()
    ended = await engine.get(outer.id)
    assert (ended.status, (ended.error or {})["code"]) == ("failed", STALE)


async def test_a_new_version_starts(engine: Engine) -> None:
    await engine.publish(APPROVAL | {"version": 2})
    assert (await engine.start("approval")).flow_version == 2
    assert start_in_sql(engine.dsn)


def test_the_schema_names_the_compiler_of_this_release(evidence: Evidence) -> None:
    assert evidence.ask("select holdfast.compiler_version()") == compiled.COMPILER_VERSION
