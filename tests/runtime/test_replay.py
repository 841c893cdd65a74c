"""What the tables hold folds back into the stored snapshot (WF-15), for real runs with losses in them."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast import Context, Engine
from holdfast.core.moments import from_datetime
from holdfast.core.replay import replay
from holdfast.core.rows import StepRow
from holdfast.core.state import Instance, decode_state, scope_view, token_view
from holdfast.core.status import InstanceStatus, StepStatus

pytestmark = pytest.mark.anyio

GRAPH: dict[str, Any] = {
    "name": "mixed",
    "entry": "begin",
    "policy": {"on_error": "suspend"},
    "nodes": [
        {"id": "begin", "kind": "task", "handler": "pass_on"},
        {"id": "big", "kind": "condition"},
        {"id": "fork", "kind": "split"},
        {"id": "left", "kind": "task", "handler": "flaky", "retry": {"calls": 3}},
        {"id": "right", "kind": "task", "handler": "pass_on"},
        {"id": "met", "kind": "join", "mode": "all"},
        {"id": "rest", "kind": "state"},
        {"id": "pause", "kind": "wait_timer", "delay": 3600},
        {"id": "end", "kind": "end"},
    ],
    "edges": [
        {"id": "begin>big", "source": "begin", "target": "big"},
        {"id": "big>fork", "source": "big", "target": "fork", "when": "input.n > 10"},
        {"id": "big>rest", "source": "big", "target": "rest", "priority": 1},
        {"id": "fork>left", "source": "fork", "target": "left"},
        {"id": "fork>right", "source": "fork", "target": "right"},
        {"id": "left>met", "source": "left", "target": "met"},
        {"id": "right>met", "source": "right", "target": "met"},
        {"id": "met>rest", "source": "met", "target": "rest"},
        {"id": "rest>pause", "source": "rest", "target": "pause", "on": "wait"},
        {"id": "rest>begin", "source": "rest", "target": "begin", "on": "again"},
        {"id": "rest>end", "source": "rest", "target": "end", "on": "done"},
        {"id": "pause>end", "source": "pause", "target": "end"},
    ],
}


async def flaky(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    if data["n"] % 3 == 0 and ctx.attempt < 3:
        raise RuntimeError("not yet")
    if data["n"] == 13:
        raise RuntimeError("never")
    return data


async def pass_on(ctx: Context, data: dict[str, Any]) -> dict[str, Any]:
    return data


async def test_every_snapshot_equals_its_replay(engine: Engine, holdfast_dsn: str) -> None:
    engine.register("flaky", flaky)
    engine.register("pass_on", pass_on)
    await engine.publish(GRAPH)
    started = await engine.start_many("mixed", [{"n": n} for n in range(24)])
    await engine.drain(timeout=60)
    await _compare(engine, holdfast_dsn, 24)

    for number, instance in enumerate(started):
        status = (await engine.get(instance.id)).status
        if status == "suspended":
            continue
        event = ("wait", "again", "done")[number % 3]
        await engine.signal(instance.id, event, {"n": number} if event == "again" else None)
    await engine.suspend(started[2].id, by="ops") if (await engine.get(started[2].id)).status == "running" else None
    await engine.drain(timeout=60)
    await _compare(engine, holdfast_dsn, 24)

    for number in (0, 3, 6):
        await engine.cancel(started[number].id, by="ops", reason="enough")
    await _compare(engine, holdfast_dsn, 24)


async def _compare(engine: Engine, dsn: str, count: int) -> None:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        instances = connection.execute(
            "select *, state::text s, data::text d, input::text i from holdfast.instances"
        ).fetchall()
        assert len(instances) == count
        for row in instances:
            live = _snapshot(row)
            program = engine.catalog.known(live.definition)
            assert program is not None
            folded = replay(program, _steps(connection, row["id"]), instance=live)
            assert token_view(folded.state) == token_view(live.state)
            assert scope_view(folded.state) == scope_view(live.state)
            assert (folded.status, folded.reason) == (live.status, live.reason)


def _snapshot(row: dict[str, Any]) -> Instance:
    return Instance(
        row["id"].bytes,
        row["org_id"],
        row["definition_id"].bytes,
        row["flow"],
        row["flow_version"],
        row["version"],
        InstanceStatus(row["status"]),
        decode_state(row["s"].encode()),
        row["d"].encode(),
        row["reason"],
        row["entity_version"],
    )


def _steps(connection: psycopg.Connection[dict[str, Any]], id: Any) -> list[StepRow]:
    query = """select *, chosen_edge_ids::text c, input::text i, output::text o, error::text e, detail::text d,
        closing::text g from holdfast.steps where instance_id = %s"""
    return [
        StepRow(
            id=r["id"].bytes,
            node=r["node"],
            behaviour=r["behaviour"],
            path=r["path"],
            hop=r["hop"],
            kind=r["kind"],
            run=r["run"],
            entity_version=r["entity_version"],
            opened_version=r["opened_version"],
            opened_ordinal=r["opened_ordinal"],
            created_at=from_datetime(r["created_at"]),
            cause=r["cause"],
            status=StepStatus(r["status"]),
            outcome=r["outcome"],
            chosen_edge_ids=_raw(r["c"]),
            input=_raw(r["i"]),
            output=_raw(r["o"]),
            error=_raw(r["e"]),
            detail=_raw(r["d"]),
            closing=_raw(r["g"]),
            calls=r["calls"],
            fence=r["fence"],
            closed_version=r["closed_version"],
            closed_ordinal=r["closed_ordinal"],
        )
        for r in connection.execute(query, (id,)).fetchall()
    ]


def _raw(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
