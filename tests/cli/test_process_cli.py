"""A process from its file to its end on the command line: publish, start, advance, signal, timeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_flows import answered, refused, run, told
from cli_served import LEAVE, configure

from holdfast import SyncEngine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "leave.yaml"
    path.write_text(LEAVE)
    return path


@pytest.fixture
def worker(holdfast_dsn: str) -> Iterator[None]:
    with SyncEngine(holdfast_dsn) as engine:
        configure(engine.engine)
        with engine.worker():
            yield


@pytest.mark.usefixtures("worker")
def test_from_its_file_to_its_end(holdfast_dsn: str, file: Path) -> None:
    assert answered(holdfast_dsn, "publish", str(file), "--by", "ann")[0]["new"]
    assert "unchanged" in told(holdfast_dsn, "publish", str(file))
    started = answered(
        holdfast_dsn, "start", "leave.request", "--input", '{"days": 3}', "--by", "ann", "--wait",
        "--business-key", "summer", "--attribute", "team=blue", "--attribute", "size=3",
    )  # fmt: skip
    assert (started["status"], started["waiting_for"]) == ("running", "task")
    assert started["attributes"] == {"team": "blue", "size": 3}
    id = started["id"]
    for filters, count in {
        ("--attribute", "size=3"): 1,
        ("--attribute", "size=4"): 0,
        ("--started-by", "ben"): 0,
    }.items():
        assert len(answered(holdfast_dsn, "list", *filters)["items"]) == count
    assert f"holdfast advance {id} approved|rejected --by NAME" in told(holdfast_dsn, "show", id)
    assert refused(holdfast_dsn, "advance", id, "approved", "--by", "ann") == (8, "SELF_APPROVAL")
    assert refused(holdfast_dsn, "advance", id, "approved", "--by", "ben", "--capability", "x") == (
        8,
        "CAPABILITY_MISSING",
    )
    assert refused(holdfast_dsn, "advance", id, "approved", "--by", "ben", "--input", '{"note": 5}') == (
        6,
        "FORM_INVALID",
    )
    assert refused(holdfast_dsn, "advance", id, "nonsense", "--by", "ben") == (6, "INVALID_TRANSITION")
    assert refused(holdfast_dsn, "advance", id, "approved", "--by", "ben", "--if-version", "99")[0] == 5
    advanced = answered(
        holdfast_dsn, "advance", id, "approved", "--by", "ben", "--capability", "leave:approve", "--comment", "fine",
        "--input", '{"note": "enjoy"}',
    )  # fmt: skip
    assert (advanced["waiting_for"], advanced["data"]["booking"]) == ("event", "B-3")
    ended = answered(holdfast_dsn, "signal", id, "confirmed_by_hr", "--by", "hr", "--input", "{}")
    assert ended["status"] == "completed"
    assert refused(holdfast_dsn, "advance", id, "approved", "--by", "ben") == (5, "WORKFLOW_NOT_ACTIVE")
    text = told(holdfast_dsn, "timeline", id)
    names = [line.split()[0] for line in text.splitlines()[3:]]
    assert names == ["review", "book", "wait"]
    assert "by ben" in text
    entries = answered(holdfast_dsn, "timeline", id)["entries"]
    assert [entry["name"] for entry in entries if entry["kind"] == "step"][:3] == ["review", "book", "wait"]
    assert answered(holdfast_dsn, "list")["items"] == answered(holdfast_dsn, "instances")["items"]


def test_a_start_that_cannot_be(holdfast_dsn: str, file: Path, tmp_path: Path) -> None:
    told(holdfast_dsn, "publish", str(file))
    given = tmp_path / "input.json"
    given.write_text('{"days": 0}')
    assert refused(holdfast_dsn, "start", "leave.request", "--input", f"@{given}") == (6, "INPUT_INVALID")
    assert refused(holdfast_dsn, "start", "leave.request", "--input", "{") == (6, "INPUT_NOT_JSON")
    assert refused(holdfast_dsn, "start", "nothing") == (4, "FLOW_UNKNOWN")
    assert refused(holdfast_dsn, "start", "leave.request", "--attribute", "x") == (6, "ATTRIBUTE_INVALID")
    assert refused(holdfast_dsn, "signal", "paid") == (6, "RECIPIENT_NOT_NAMED")
    assert refused(holdfast_dsn, "signal", "x", "y", "--key", "k") == (6, "RECIPIENT_NOT_NAMED")
    late = run(holdfast_dsn, "start", "leave.request", "--input", '{"days": 1}', "--wait", "--timeout", "0", "--json")
    assert (late.code, json.loads(late.output)["status"]) == (10, "pending")


def test_all_problems_are_told_before_anything_is_stored(holdfast_dsn: str, file: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(LEAVE.replace("leave.request", "other.request").replace("to: book", "to: bok"))
    also = tmp_path / "deeper" / "also.yml"
    also.parent.mkdir()
    also.write_text("workflows:\n  - id: x\n    stepz: []\n")
    done = run(holdfast_dsn, "publish", str(tmp_path), "cli_apps:NOT_AN_ENGINE")
    assert done.code == 2
    assert done.errors.startswith("[DEFINITION_INVALID]")
    for line in (f"{broken}:", "STEPS_TARGET_UNKNOWN", f"{also}:", "STEPS_KEY_UNKNOWN", "FLOW_INVALID"):
        assert line in done.errors
    assert told(holdfast_dsn, "flows") == "There are no flows.\n"
    assert refused(holdfast_dsn, "publish", str(also.parent / "none")) == (4, "FILE_NOT_FOUND")


def test_a_version_that_is_taken_stops_all(holdfast_dsn: str, file: Path, tmp_path: Path) -> None:
    told(holdfast_dsn, "publish", str(file))
    file.write_text(LEAVE.replace("minimum: 1", "minimum: 2"))
    (tmp_path / "more.yaml").write_text(LEAVE.replace("leave.request", "more.request"))
    assert refused(holdfast_dsn, "publish", str(tmp_path)) == (5, "VERSION_TAKEN")
    assert [flow["name"] for flow in answered(holdfast_dsn, "flows")] == ["leave.request"]
    file.write_text(LEAVE.replace("version: 1", "version: 2"))
    planned = answered(holdfast_dsn, "publish", str(tmp_path), "cli_apps:FLOW", "--dry-run")
    assert {(one["name"], one["version"], one["new"]) for one in planned} == {
        ("leave.request", 2, True), ("more.request", 1, True), ("cli", 1, True)
    }  # fmt: skip
    assert len(answered(holdfast_dsn, "flows")) == 1
    told(holdfast_dsn, "publish", str(tmp_path), "cli_apps:FLOW")
    assert len(answered(holdfast_dsn, "flows")) == 3


def test_a_sub_flow_that_is_not_published_is_warned_of(holdfast_dsn: str) -> None:
    """One that comes with the same command is not."""
    done = run(holdfast_dsn, "publish", "cli_apps:PARENT", "cli_apps:CHILD")
    assert done.code == 0
    assert "'child' starts the flow 'typo', which is not published." in done.errors
    assert done.errors.count("starts the flow") == 1
    parent, child = answered(holdfast_dsn, "publish", "cli_apps:PARENT", "cli_apps:CHILD")
    assert (parent["unknown_flows"], child["unknown_flows"]) == ([], ["typo"])


def test_errors_are_json_where_results_are(holdfast_dsn: str, tmp_path: Path) -> None:
    def complaint(*words: str) -> dict[str, Any]:
        done = run(holdfast_dsn, *words, "--json")
        assert done.output == ""
        [line] = done.errors.splitlines()
        error = json.loads(line)["error"]
        assert error.pop("exit_code") == done.code
        return error

    unknown = complaint("start", "nothing")
    assert unknown == {
        "code": "FLOW_UNKNOWN",
        "message": "There is no flow 'nothing'.",
        "hint": "Publish it first, and check the organisation.",
    }
    for misuse in (("list", "--limit", "0"), ("list", "--lmit", "5"), ("lst",), ("start",), ("advance", "x", "y")):
        assert complaint(*misuse)["code"] == "COMMAND_LINE_INVALID"
    assert "'--limit'" in complaint("list", "--limit", "0")["message"]
    file = tmp_path / "leave.yaml"
    file.write_text(LEAVE)
    told(holdfast_dsn, "publish", str(file))
    misfit = complaint("start", "leave.request", "--input", '{"days": 0}')
    assert (misfit["code"], misfit["errors"][0]["place"]) == ("INPUT_INVALID", "$.days")
    file.write_text(LEAVE.replace("to: book", "to: bok"))
    [problem] = complaint("publish", str(file))["errors"]
    assert (problem["code"], problem["file"], problem["severity"]) == ("STEPS_TARGET_UNKNOWN", str(file), "error")
