"""`holdfast migrate`, `revert-migration` and `rerun` as an operator runs them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from holdfast import Context, DoNotRetry, Engine, Flow
from holdfast.cli.app import app

pytestmark = pytest.mark.anyio


def order(version: int, wait: str) -> dict[str, Any]:
    return {
        "name": "order",
        "version": version,
        "entry": "charge",
        "nodes": [
            {"id": "charge", "kind": "task", "handler": "echo"},
            {"id": wait, "kind": "wait_event", "wait": {"event": "signed"}},
            {"id": "end", "kind": "end"},
        ],
        "edges": [{"id": "a", "source": "charge", "target": wait}, {"id": "b", "source": wait, "target": "end"}],
    }


def line(name: str, version: int, *nodes: dict[str, Any]) -> dict[str, Any]:
    ids = [node["id"] for node in nodes]
    edges = [{"id": f"{a}-", "source": a, "target": b} for a, b in zip(ids, [*ids[1:], "end"], strict=True)]
    return {
        "name": name, "version": version, "entry": ids[0], "edges": edges,
        "nodes": [*nodes, {"id": "end", "kind": "end"}],
    }  # fmt: skip


def drawn(done: Result) -> list[str]:
    """The signs and names of the tree."""
    return [" ".join(row.split()[:2]) for row in done.stdout.splitlines() if row[:1] in tuple("✓?·●◔✗")]


async def run(dsn: str, *arguments: str) -> Result:
    runner = CliRunner(env={"HOLDFAST_DSN": dsn, "NO_COLOR": "1"})
    return await asyncio.to_thread(runner.invoke, app, arguments)


async def answer(dsn: str, *arguments: str, code: int = 0) -> Any:
    done = await run(dsn, *arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture
async def waiting(engine: Engine) -> str:
    @engine.handler("echo")
    async def echo(ctx: Context, data: Any) -> Any:
        return data

    await engine.publish(order(1, "ask"))
    await engine.publish(order(2, "question"))
    id = (await engine.start("order", {"n": 1}, version=1)).id
    await engine.drain(timeout=30)
    return id


async def test_a_dry_run_lists_who_is_blocked_and_why(waiting: str, holdfast_dsn: str) -> None:
    done = await run(holdfast_dsn, "migrate", "order", "--to", "2", "--by", "ann", "--dry-run")
    assert done.exit_code == 5
    assert f"{waiting}  MIGRATION_NODE_MISSING" in done.stdout
    assert "0 could be moved, 1 blocked." in done.stdout


async def test_an_instance_is_moved_and_moved_back(engine: Engine, waiting: str, holdfast_dsn: str) -> None:
    words = ["migrate", "order", "--to", "2", "--from", "1", "--node", "ask=question", "--by", "ann", "--reason", "law"]
    assert await answer(holdfast_dsn, *words) == {"dry_run": False, "moved": [waiting], "blocked": []}
    assert (await engine.get(waiting)).flow_version == 2
    back = await answer(holdfast_dsn, "revert-migration", "order", "--from", "2", "--instance", waiting, "--by", "ann")
    assert back["moved"] == [waiting]
    assert (await engine.get(waiting)).flow_version == 1


async def test_what_is_shown_bears_the_names_of_today(engine: Engine, holdfast_dsn: str) -> None:
    engine.register("echo", lambda ctx, data: data)
    for version, names in enumerate((("charge", "point", "ask"), ("pay", "mark", "sign"), ("bill", "mark", "sign")), 1):
        paid, point, asked = names
        nodes: list[dict[str, Any]] = [
            {"id": paid, "kind": "task", "handler": "echo"},
            {"id": point, "kind": "save_point"},
            {"id": asked, "kind": "human"},
        ]
        await engine.publish(line("order", version, *nodes))
    id = (await engine.start("order", version=1)).id
    await engine.drain(timeout=30)
    renamed = {"charge": "pay", "point": "mark", "ask": "sign"}
    await engine.migrate("order", to=2, nodes=renamed)
    await engine.migrate("order", to=3, nodes={"pay": "bill"})
    assert drawn(await run(holdfast_dsn, "show", id)) == ["✓ bill", "✓ mark", "? sign"]
    [task] = await engine.tasks(id)
    await engine.decide(task.id, by="ben", decision="confirmed")
    await engine.drain(timeout=30)
    assert "ben" in next(row for row in (await run(holdfast_dsn, "timeline", id)).stdout.splitlines() if "ask" in row)


async def test_a_mapping_needs_two_names(waiting: str, holdfast_dsn: str) -> None:
    done = await run(holdfast_dsn, "migrate", "order", "--to", "2", "--node", "ask", "--by", "ann")
    assert "NODE_MAPPING_INVALID" in str(done.exception)


async def test_a_step_is_run_again_with_another_input(
    engine: Engine, waiting: str, holdfast_dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "input.json").write_text('{"n": 2}')
    words = ["rerun", waiting, "--from", "charge", "--by", "ann", "--input", f"@{tmp_path / 'input.json'}"]
    assert await answer(holdfast_dsn, *words) == {
        "id": waiting, "flow": "order", "status": "running", "is_new": False,
    }  # fmt: skip
    await engine.drain(timeout=30)
    assert [step.input for step in await engine.steps(waiting) if step.name == "charge"] == [{"n": 1}, {"n": 2}]


async def test_one_that_is_over_is_run_again_as_a_new_one(engine: Engine, waiting: str, holdfast_dsn: str) -> None:
    await engine.signal(waiting, "signed")
    told = await answer(holdfast_dsn, "rerun", waiting, "--from", "charge", "--by", "ann", "--reason", "again")
    assert told["is_new"]
    words = ["rerun", waiting, "--from", "charge", "--by", "ann", "--key", "t-1"]
    keyed = [await answer(holdfast_dsn, *words) for _ in range(2)]
    assert keyed[0]["id"] == keyed[1]["id"] not in (waiting, told["id"])
    assert (await engine.get(told["id"])).created_by == "ann"


async def test_many_that_failed_are_run_again_at_once(engine: Engine, holdfast_dsn: str) -> None:
    is_down = True

    @engine.handler("pay")
    async def pay(ctx: Context, data: Any) -> Any:
        if is_down:
            raise DoNotRetry("the bank is down")
        return data

    await engine.publish(Flow("paid").step("pay", "pay").build())
    old = [(await engine.start("paid", {"n": n})).id for n in range(3)]
    await engine.drain(timeout=30)
    is_down = False
    words = ["rerun", "--flow", "paid", "--from", "pay", "--by", "ann"]
    assert (await answer(holdfast_dsn, *words, "--dry-run"))["count"] == 3
    assert "RERUN_KEY_NEEDED" in str((await run(holdfast_dsn, *words, "--yes")).exception)
    assert "CONFIRMATION_NEEDED" in str((await run(holdfast_dsn, *words, "--key", "t-2")).exception)
    assert len((await engine.list(flow="paid")).items) == 3  # nothing happened so far
    told = await answer(holdfast_dsn, *words, "--key", "t-2", "--yes")
    assert told["refused"] == []
    new = {each["id"] for each in told["done"]}
    assert len(new - set(old)) == 3
    await engine.drain(timeout=30)
    assert [(await engine.get(id)).status for id in new] == ["completed"] * 3
    again = await answer(holdfast_dsn, *words, "--key", "t-2", "--yes")
    assert {each["id"] for each in again["done"]} == new
    some = await answer(holdfast_dsn, "rerun", *old[:2], "--from", "pay", "--by", "ann", "--key", "t-2", "--yes")
    assert {each["id"] for each in some["done"]} < new
    both = await run(holdfast_dsn, *words, old[0], "--key", "t-2")
    assert "INSTANCES_NOT_NAMED" in str(both.exception)
    left = await run(holdfast_dsn, "rerun", *old[:2], "--from", "nowhere", "--by", "ann", "--key", "t-3")
    assert left.exit_code == 5
