"""`holdfast validate` and `holdfast schema`: what people and editors see of a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from steps_yaml import EXAMPLES, document, step, workflow
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.doors.steps import steps_schema
from holdfast.doors.yaml.reading import LARGEST

GOOD = document(workflow([step("a", "action"), step("z")], [("a", "go", "z")]))
WARNED = document(workflow([step("a", "action"), step("z")], [("a", "go", "z", "workflow.x == 1")]))


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_sound_files_are_listed() -> None:
    code, output = run("validate", EXAMPLES)
    assert code == 0
    assert [line.split(": ")[1] for line in output.splitlines()] == [
        "disputes.resolution version 1, 10 steps",
        "expenses.approval version 1, 8 steps",
        "orders.approval version 1, 8 steps",
        "settlements.payment version 1, 8 steps",
        "users.onboarding version 1, 8 steps",
    ]


def test_every_problem_of_every_file_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.yaml").write_text("workflows:\n  - id: w\n    stps: []\n")
    (tmp_path / "inner" / "b.yml").write_text("a: [\n")
    (tmp_path / "c.txt").write_text("not looked at")
    code, output = run("validate", tmp_path)
    assert code == 1
    assert output.splitlines() == [
        f"{tmp_path}/a.yaml:2:5: STEPS_KEY_MISSING The workflow has no 'steps'."
        " (`holdfast docs steps` shows what is needed.)",
        f"{tmp_path}/a.yaml:3:5: STEPS_KEY_UNKNOWN A workflow has no key 'stps'. (Did you mean steps?)",
        f"{tmp_path}/inner/b.yml:2:1: YAML_SYNTAX While parsing a flow node: expected the node content, but found "
        "'<stream end>'. (Check the indentation and the quotes near this place.)",
        "3 problems.",
    ]


def test_the_place_of_a_problem_is_no_emoji(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text("#\n" * 99 + "a: 1\n")
    code, output = run("validate", file)
    assert code == 1
    assert f"{file}:100:1: " in output


def test_warnings_are_told_and_pass(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(WARNED)
    code, output = run("validate", file)
    assert code == 0
    assert "STEPS_NO_DEFAULT warning: Every transition on 'go' has a condition" in output


def test_json_for_scripts(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(GOOD.replace('"w"', '"w", "version": 0', 1))
    code, output = run("validate", file, "--json")
    [found] = json.loads(output)
    assert code == 1
    assert found == {
        "file": str(file),
        "line": 4,
        "column": 26,
        "code": "STEPS_VALUE_INVALID",
        "message": "'version' is 0; it must be a whole number from 1 to 2147483647.",
        "hint": "`holdfast docs steps` shows what each key takes.",
        "severity": "error",
    }
    assert run("validate", EXAMPLES, "--json") == (0, "[]\n")


def test_the_same_workflow_in_two_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(GOOD)
    code, output = run("validate", tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path)
    assert code == 1
    assert output.count("STEPS_DUPLICATE") == 1


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        (b"a: \xff", "YAML_CHARACTER", "1:4"),
        (b"a: b\nc: \xc3(", "YAML_CHARACTER", "2:4"),
        ("ä".encode() * LARGEST, "YAML_TOO_LARGE", "1:1"),
        (b"a" * (LARGEST + 1), "YAML_TOO_LARGE", "1:1"),
        (b"", "YAML_EMPTY", "1:1"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, code: str, place: str) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    exit_code, output = run("validate", file)
    assert exit_code == 1
    assert output.startswith(f"{file}:{place}: {code} ")


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert run("validate", file)[0] == 0


def test_a_file_that_is_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "validate", "nowhere.yaml"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (4, "[FILE_NOT_FOUND] There is no file 'nowhere.yaml'. Check the name.\n")


def test_the_schema_is_printed() -> None:
    code, output = run("schema")
    assert (code, json.loads(output)) == (0, steps_schema())
