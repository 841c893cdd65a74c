"""`holdfast cancel`, `abort`, `pause`, `resume` and `requeue`: one instance, or many."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_flows import answered, drained, prepared, refused, run, started, told

from holdfast import SyncEngine

WHY = ("--by", "ann", "--reason", "no longer needed")


def status(dsn: str, id: str) -> str:
    return answered(dsn, "show", id)["instance"]["status"]


@pytest.fixture
def waiting(holdfast_dsn: str) -> list[str]:
    """Three that wait for a person, one of them paused, and one that is over."""
    with SyncEngine(holdfast_dsn) as engine:
        prepared(engine)
        ids = [engine.start("order", {"amount": amount}).id for amount in (200, 300, 400, 5)]
        engine.drain(timeout=30)
        engine.suspend(ids[2], by="ann")
    return ids


def test_cancel_takes_back_and_abort_does_not(holdfast_dsn: str, waiting: list[str]) -> None:
    assert told(holdfast_dsn, "cancel", waiting[0], *WHY).split() == [waiting[0], "rolling_back"]
    assert told(holdfast_dsn, "abort", waiting[1], *WHY).split() == [waiting[1], "aborted"]
    drained(holdfast_dsn)
    assert " by ann: no longer needed" in told(holdfast_dsn, "show", waiting[0])
    cancelled, aborted = (answered(holdfast_dsn, "show", id) for id in waiting[:2])
    assert cancelled["instance"]["reason"] == aborted["instance"]["reason"] == "no longer needed"
    assert {s["name"] for s in cancelled["steps"] if s["kind"] == "compensate"} == {"release", "unship", "refund"}
    assert [s for s in aborted["steps"] if s["kind"] == "compensate"] == []


def test_pause_and_resume(holdfast_dsn: str, waiting: list[str]) -> None:
    done = answered(holdfast_dsn, "pause", waiting[0], waiting[1], *WHY)
    assert [(i["id"], i["status"]) for i in done["done"]] == [(id, "suspended") for id in waiting[:2]]
    assert [i["reason"] for i in done["done"]] == ["no longer needed"] * 2
    answered(holdfast_dsn, "resume", waiting[0], "--by", "ben")
    assert [status(holdfast_dsn, id) for id in waiting] == ["running", "suspended", "suspended", "completed"]
    assert refused(holdfast_dsn, "resume", waiting[0], "--by", "ben") == (5, "INSTANCE_NOT_SUSPENDED")


def test_one_that_refuses_does_not_stop_the_others(holdfast_dsn: str, waiting: list[str]) -> None:
    done = run(holdfast_dsn, "abort", waiting[3], waiting[0], waiting[0], *WHY)
    assert (done.code, done.output.split()) == (5, [waiting[0], "aborted"])
    assert done.errors.startswith(f"[INSTANCE_OVER] {waiting[3]}: ")
    assert refused(holdfast_dsn, "abort", waiting[3], *WHY) == (5, "INSTANCE_OVER")
    assert refused(holdfast_dsn, "cancel", "01a1e235-1b90-71cd-816e-7436dd66e7b7", *WHY) == (4, "INSTANCE_UNKNOWN")


def test_many_are_named_by_flow_and_status(holdfast_dsn: str, waiting: list[str]) -> None:
    paused = answered(holdfast_dsn, "abort", "--status", "suspended", "--dry-run", *WHY)
    assert paused == {"dry_run": True, "count": 1, "ids": [waiting[2]]}
    tried = told(holdfast_dsn, "abort", "--flow", "order", "--dry-run", *WHY)
    assert tried.splitlines()[-1] == "abort would change 3 instances."
    assert refused(holdfast_dsn, "abort", "--flow", "order", *WHY) == (6, "CONFIRMATION_NEEDED")
    done = answered(holdfast_dsn, "abort", "--flow", "order", "--limit", "2", "--yes", *WHY)
    assert (len(done["done"]), done["refused"]) == (2, [])
    told(holdfast_dsn, "abort", "--flow", "order", "--yes", *WHY)
    assert sorted(status(holdfast_dsn, id) for id in waiting) == ["aborted"] * 3 + ["completed"]
    assert told(holdfast_dsn, "abort", "--flow", "order", *WHY) == "There are no such instances.\n"


def test_nothing_named_is_not_everything(holdfast_dsn: str) -> None:
    assert refused(holdfast_dsn, "cancel", *WHY) == (6, "INSTANCES_NOT_NAMED")
    id = "01a1e235-1b90-71cd-816e-7436dd66e7b7"
    assert refused(holdfast_dsn, "cancel", id, "--flow", "order", *WHY) == (6, "INSTANCES_NOT_NAMED")
    assert run(holdfast_dsn, "cancel", id).code == 2  # --by is missing


def test_a_dead_step_is_put_back_with_another_input(holdfast_dsn: str, tmp_path: Path) -> None:
    id = started(holdfast_dsn, "repair", {"kilos": 2})
    [letter] = answered(holdfast_dsn, "show", id)["dead_letters"]
    right = tmp_path / "right.json"
    right.write_text('{"grams": 2000}')
    done = answered(holdfast_dsn, "requeue", letter["id"], "--input", f"@{right}", *WHY)
    assert done == {"done": [letter["id"]], "refused": []}
    drained(holdfast_dsn)
    shown = answered(holdfast_dsn, "show", id)
    assert shown["instance"]["status"] == "completed"
    assert [(s["run"], s["input"]) for s in shown["steps"] if s["name"] == "broken"] == [
        (0, {"kilos": 2}),
        (1, {"grams": 2000}),
    ]
    assert refused(holdfast_dsn, "requeue", letter["id"], *WHY) == (5, "DEAD_LETTER_RESOLVED")


def test_every_letter_of_an_instance_is_put_back(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "repair", {})
    assert "replayed" in told(holdfast_dsn, "requeue", "--instance", id, *WHY)
    drained(holdfast_dsn)  # the same input fails in the same way
    assert len(answered(holdfast_dsn, "show", id)["dead_letters"]) == 1
    other = started(holdfast_dsn, "order", {"amount": 5})
    assert told(holdfast_dsn, "requeue", "--instance", other, *WHY) == "There are no open dead letters.\n"


def test_several_letters_are_put_back_with_inputs_of_their_own(holdfast_dsn: str) -> None:
    id = started(holdfast_dsn, "twice", {})
    letters = {
        letter["envelope"]["node"]: letter["id"] for letter in answered(holdfast_dsn, "show", id)["dead_letters"]
    }
    inputs = json.dumps({letters["left"]: {"grams": 1}, letters["right"]: {"grams": 2}})
    done = answered(holdfast_dsn, "requeue", "--inputs", inputs, *WHY)
    assert (sorted(done["done"]), done["refused"]) == (sorted(letters.values()), [])
    drained(holdfast_dsn)
    shown = answered(holdfast_dsn, "show", id)
    assert shown["instance"]["status"] == "completed"
    again = run(holdfast_dsn, "requeue", *letters.values(), *WHY, "--json")
    refused_ = json.loads(again.output)["refused"]
    assert (again.code, {each["code"] for each in refused_}) == (5, {"DEAD_LETTER_RESOLVED"})
    assert "DEAD_LETTER_RESOLVED" in run(holdfast_dsn, "requeue", *letters.values(), *WHY).errors


def test_no_letter_of_an_instance_is_forgotten(holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: pages are the command's own business."""
    monkeypatch.setattr("holdfast.runtime.ops.dead_letters.PAGE", 1)
    id = started(holdfast_dsn, "twice", {})
    assert len(answered(holdfast_dsn, "requeue", "--instance", id, *WHY)["done"]) == 2


def test_a_requeue_that_makes_no_sense(holdfast_dsn: str) -> None:
    unknown = "01a1e235-1b90-71cd-816e-7436dd66e7b7"
    other = unknown[:-1] + "8"
    assert refused(holdfast_dsn, "requeue", *WHY) == (6, "DEAD_LETTERS_NOT_NAMED")
    assert refused(holdfast_dsn, "requeue", unknown, "--instance", unknown, *WHY) == (6, "DEAD_LETTERS_NOT_NAMED")
    assert refused(holdfast_dsn, "requeue", unknown, *WHY) == (4, "DEAD_LETTER_UNKNOWN")
    assert refused(holdfast_dsn, "requeue", "--instance", unknown, *WHY) == (4, "INSTANCE_UNKNOWN")
    assert refused(holdfast_dsn, "requeue", unknown, "--input", "{", *WHY) == (6, "INPUT_NOT_JSON")
    assert refused(holdfast_dsn, "requeue", unknown, "--input", "@nowhere.json", *WHY) == (6, "INPUT_NOT_JSON")
    assert refused(holdfast_dsn, "requeue", unknown, other, "--input", "1", *WHY) == (6, "INPUT_FOR_MANY")
    assert refused(holdfast_dsn, "requeue", unknown, "--input", "1", "--inputs", "{}", *WHY) == (6, "INPUT_FOR_MANY")
    assert refused(holdfast_dsn, "requeue", "--inputs", "[]", *WHY) == (6, "INPUT_NOT_JSON")
