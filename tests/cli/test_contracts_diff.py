"""`holdfast contracts diff`: two files compared with no database."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.errors import DefinitionError, HoldfastError, NotFound

ROOT = Path(__file__).parents[2]
STEPS = ROOT / "examples" / "steps" / "dispute.yaml"
PAGE = (ROOT / "docs" / "difference.md").read_text()
CONTRACT_AND_PATCH, PATCH = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[TOLD] = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DSN", "postgresql://nobody@127.0.0.1:1/nowhere")
    Path("invoice.yaml").write_text(CONTRACT_AND_PATCH)
    Path("next.yaml").write_text(PATCH)
    Path("contract.yaml").write_text(CONTRACT_AND_PATCH.partition("patch:\n")[0])


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["contracts", "diff", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def refused(*arguments: str) -> HoldfastError:
    failure = CliRunner().invoke(app, ["contracts", "diff", *arguments]).exception
    assert isinstance(failure, HoldfastError)
    return failure


def test_the_page_shows_what_the_command_prints() -> None:
    assert run("invoice.yaml", "next.yaml") == (0, TOLD)


def test_a_file_without_a_patch_is_the_bare_envelope() -> None:
    code, output = run("contract.yaml", "invoice.yaml")
    assert code == 0
    assert "slot submitted_to_approved: empty → filled\n" in output
    assert "  + approval finance\n" in output
    assert run("contract.yaml", "contract.yaml") == (0, "invoice: contract.yaml → contract.yaml\nno difference\n")


def test_decision_tables_of_the_files_are_known() -> None:
    made = CliRunner().invoke(app, ["contracts", "new", "--template", "invoice_approval"]).output
    Path("ours.yaml").write_text(made)
    Path("theirs.yaml").write_text(made.replace("due: 3d", "due: 5d"))
    code, output = run("ours.yaml", "theirs.yaml")
    assert code == 0
    assert "due in 3 days → 5 days" in output


def test_as_json() -> None:
    code, output = run("next.yaml", "invoice.yaml", "--json")
    document = json.loads(output)
    assert code == 0
    assert (document["before"]["patch"], document["after"]["patch"]) == (2, 1)
    assert [slot["name"] for slot in document["slots"]] == ["submitted_to_approved"]
    assert [part["change"] for part in document["policies"]] == ["removed"]


def test_as_a_page() -> None:
    assert run("invoice.yaml", "next.yaml", "--html", "page.html") == (0, "")
    page = Path("page.html").read_text()
    assert page.count("<svg ") == 2
    assert "<title>invoice: invoice.yaml → next.yaml</title>" in page
    assert refused("invoice.yaml", "next.yaml", "--html", "nowhere/page.html").code == "FILE_UNWRITABLE"


def test_problems_of_a_file_are_lines() -> None:
    Path("broken.yaml").write_text(PATCH.replace("kind: approval", "kind: aproval"))
    code, output = run("invoice.yaml", "broken.yaml")
    assert code == 1
    assert "broken.yaml:10:31: PATCH_VALUE_INVALID" in output


def test_a_patch_that_does_not_fit_its_contract() -> None:
    Path("odd.yaml").write_text(PATCH.replace("grand_total", "total"))
    failure = refused("invoice.yaml", "odd.yaml")
    assert isinstance(failure, DefinitionError)
    assert failure.diagnostics


@pytest.mark.parametrize(
    ("before", "after"), [("next.yaml", "next.yaml"), ("two.yaml", "next.yaml"), (str(STEPS), "invoice.yaml")]
)
def test_files_that_cannot_be_compared(before: str, after: str) -> None:
    Path("two.yaml").write_text("patches: [PATCH, PATCH]".replace("PATCH", "{contract: invoice, envelope: 1}"))
    assert refused(before, after).code == "NOT_COMPARABLE"


def test_contracts_of_two_types() -> None:
    Path("order.yaml").write_text(Path("contract.yaml").read_text().replace("type: invoice", "type: order"))
    assert refused("contract.yaml", "order.yaml").code == "NOT_COMPARABLE"


def test_a_file_that_is_not_there() -> None:
    assert isinstance(refused("invoice.yaml", "nowhere.yaml"), NotFound)
