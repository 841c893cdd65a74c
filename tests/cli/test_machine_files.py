"""`holdfast validate` and `holdfast schema`: blueprints and policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.doors.machine import blueprint_schema, policy_schema
from holdfast.errors import NotFound

EXAMPLES = Path(__file__).parents[2] / "examples" / "machines"
BLUEPRINT = EXAMPLES / "vendor_registration.blueprint.json"
POLICY = EXAMPLES / "vendor_registration.policy.json"


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document, indent=2))
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write(tmp_path / "p.policy.json", {"for": {"definition": "vendorregistration"}, "ruls": [], "stale": "P1Y"})


def test_a_machine_and_its_policy() -> None:
    line = f"{BLUEPRINT}: prod.vendorregistration version 1, 7 states"
    assert run("validate", BLUEPRINT) == (0, f"{line}\n")
    assert run("validate", BLUEPRINT, "--policy", POLICY) == (0, f"{line} with a policy\n")
    assert run("validate", POLICY, BLUEPRINT) == (0, f"{line} with a policy\n")
    code, all_lines = run("validate", EXAMPLES)
    blueprints = sorted(map(str, EXAMPLES.glob("*.blueprint.json")))
    assert (code, [told.partition(":")[0] for told in all_lines.splitlines()]) == (0, blueprints)
    assert f"{line} with a policy" in all_lines.splitlines()
    assert run("validate", POLICY) == (0, f"{POLICY}: policy of vendorregistration, 5 rules\n")
    assert run("validate", "--policy", POLICY, EXAMPLES.parent / "steps" / "dispute.yaml")[0] == 0


def test_problems_are_lines_of_their_file(broken: Path) -> None:
    code, output = run("validate", BLUEPRINT, "--policy", broken)
    assert code == 1
    assert output.splitlines() == [
        f"{broken}:5:11: MACHINE_KEY_UNKNOWN A policy has no key 'ruls'. (Did you mean rules?)",
        f"{broken}:6:12: MACHINE_DURATION_INVALID 'stale' is 'P1Y', which is no duration."
        " (Months and years have no fixed length: write days, such as P30D.)",
        "2 problems.",
    ]
    assert run("validate", broken)[1].splitlines()[-1] == "2 problems."


def test_problems_as_json(broken: Path) -> None:
    code, output = run("validate", broken, "--json")
    assert (code, [found["place"] for found in json.loads(output)]) == (1, ["ruls", "stale"])


def test_one_document_with_both(tmp_path: Path) -> None:
    both = {"blueprint": json.loads(BLUEPRINT.read_text()), "policy": json.loads(POLICY.read_text())}
    file = write(tmp_path / "vendor.json", both)
    assert run("validate", file) == (0, f"{file}: prod.vendorregistration version 1, 7 states with a policy\n")


def test_warnings_do_not_count(tmp_path: Path) -> None:
    rules = {"for": {"definition": "vendorregistration"}, "rules": [{"state": "Elsewhere"}]}
    code, output = run("validate", BLUEPRINT, "--policy", write(tmp_path / "p.json", rules))
    assert code == 0
    assert "MACHINE_POLICY_STATE_UNKNOWN warning:" in output


def test_text_that_is_no_json_and_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.blueprint.json").write_text("{")
    (tmp_path / "other.json").write_text("{")
    code, output = run("validate", tmp_path)
    assert (code, output.splitlines()[-1]) == (1, "1 problem.")
    assert "PAYLOAD_NOT_JSON" in output
    missing = CliRunner().invoke(app, ["validate", str(tmp_path / "nowhere.json")])
    assert isinstance(missing.exception, NotFound)
    assert run("validate", BLUEPRINT, "--policy", tmp_path / "nowhere.json")[0] == 1


@pytest.mark.parametrize(("name", "schema"), [("blueprint", blueprint_schema()), ("policy", policy_schema())])
def test_the_schemas_are_printed(name: str, schema: dict[str, Any]) -> None:
    code, output = run("schema", name)
    assert (code, json.loads(output)) == (0, schema)


def test_a_schema_that_does_not_exist() -> None:
    assert isinstance(CliRunner().invoke(app, ["schema", "saga"]).exception, NotFound)
