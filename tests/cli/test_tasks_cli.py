"""`holdfast tasks`: the inbox on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_here import command

from holdfast import Context, Flow, SyncEngine
from holdfast.store.tasks import Task


async def keep(ctx: Context, data: Any) -> Any:
    return data


FLOW = Flow("expense").step("collect", keep).human("approve", roles=["manager"], due=3600, form={"a": 1}).build()


@pytest.fixture
def task(holdfast_dsn: str) -> Task:
    with SyncEngine(holdfast_dsn) as engine:
        engine.publish(FLOW)
        instance = engine.start("expense", {"amount": 5})
        engine.drain(timeout=30)
        [task] = engine.tasks(instance.id)
        return task


def answer(dsn: str, *arguments: str) -> Any:
    done = command("tasks", *arguments, "--json", HOLDFAST_DSN=dsn)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_from_the_inbox_to_the_decision(holdfast_dsn: str, task: Task) -> None:
    [listed] = answer(holdfast_dsn, "list", "--role", "manager")
    assert (listed["id"], listed["status"], listed["payload"]) == (task.id, "open", {"amount": 5})
    assert answer(holdfast_dsn, "list", "--role", "clerk") == []
    assert answer(holdfast_dsn, "claim", task.id, "--by", "ann", "--role", "manager")["assignee"] == "ann"
    assert [t["id"] for t in answer(holdfast_dsn, "list", "--assignee", "ann")] == [task.id]
    assert answer(holdfast_dsn, "release", task.id, "--by", "ann")["status"] == "open"
    decided = answer(
        holdfast_dsn, "decide", task.id, "confirmed", "--by", "ann", "--comment", "fine", "--data", '{"amount": 4}'
    )
    assert (decided["status"], decided["decided_by"], decided["data"]) == ("completed", "ann", {"amount": 4})
    assert answer(holdfast_dsn, "list") == []
    [over] = answer(holdfast_dsn, "list", "--instance", task.instance_id, "--status", "completed", "--limit", "5")
    assert over["id"] == task.id
    shown = answer(holdfast_dsn, "show", task.id)
    assert [e["type"] for e in shown["events"]] == ["created", "claimed", "released", "completed"]


def test_what_people_see(holdfast_dsn: str, task: Task) -> None:
    listed = command("tasks", "list", HOLDFAST_DSN=holdfast_dsn).stdout
    assert task.id in listed
    assert "expense/approve" in listed
    shown = command("tasks", "show", task.id, HOLDFAST_DSN=holdfast_dsn).stdout
    for word in ("approve", "manager", '{"amount": 5}', "created", "system"):
        assert word in shown
    assert "There are no tasks." in command("tasks", "list", "--role", "x", HOLDFAST_DSN=holdfast_dsn).stdout


def test_refusals_have_their_exit_codes(holdfast_dsn: str, task: Task) -> None:
    command("tasks", "claim", task.id, "--by", "ann", HOLDFAST_DSN=holdfast_dsn)
    taken = command("tasks", "claim", task.id, "--by", "ben", HOLDFAST_DSN=holdfast_dsn)
    assert taken.returncode == 5
    assert "[TASK_CLAIMED]" in taken.stderr
    assert "'ann'" in taken.stderr
    unknown = command("tasks", "show", "01a1e235-1b90-71cd-816e-7436dd66e7b7", HOLDFAST_DSN=holdfast_dsn)
    assert (unknown.returncode, "[TASK_UNKNOWN]" in unknown.stderr) == (4, True)
    garbage = command("tasks", "decide", task.id, "confirmed", "--by", "ann", "--data", "{", HOLDFAST_DSN=holdfast_dsn)
    assert (garbage.returncode, "[DATA_NOT_JSON]" in garbage.stderr) == (6, True)


def test_what_was_filled_in_may_lie_in_a_file(holdfast_dsn: str, task: Task, tmp_path: Path) -> None:
    (tmp_path / "filled.json").write_text('{"amount": 7}')
    given = ("tasks", "decide", task.id, "confirmed", "--by", "ann", "--data", f"@{tmp_path}/filled.json", "--json")
    assert json.loads(command(*given, HOLDFAST_DSN=holdfast_dsn).stdout)["data"] == {"amount": 7}
