"""`holdfast contracts`, here and on a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_served import serving
from msgspec.structs import replace
from typer.testing import CliRunner

from holdfast import Contract, Fill, Patch, load_contracts
from holdfast.cli.app import app
from holdfast.doors.envelope.decision_tables.builder import table_yaml
from holdfast.doors.envelope.printing import contract_yaml, patch_yaml
from holdfast.runtime.envelopes.templates import read_template

BY = ("--by", "ann")


@pytest.fixture
def url(holdfast_dsn: str) -> Iterator[str]:
    with serving(holdfast_dsn) as url:
        yield url


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for version in (1, 2):
        states = Contract("invoice", version).state("draft").state("sent").state("paid", ends=True)
        gates = states.verb("send", "draft", "sent").gate("pay", "sent", "paid").gate("back", "sent", "draft")
        found[f"contract{version}"] = contract_yaml(gates.slot("review", "sent", "pay").build())
    steps = Fill().approval("check", role="finance").edge("in", "check").edge("check", "out", on="approved")
    found["patch"] = patch_yaml(Patch("invoice", envelope=1).slot("review", steps).build())
    found["wrong"] = patch_yaml(Patch("invoice", envelope=1).slot("nowhere", steps).build())
    for name, text in found.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return {name: str(tmp_path / f"{name}.yaml") for name in found}


def ran(*words: str, expected: int = 0) -> str:
    done = CliRunner().invoke(app, ["contracts", *words])
    # What is raised is turned into an exit code outside of the app.
    code = getattr(done.exception, "exit_code", done.exit_code)
    assert code == expected, (words, done.output, done.exception)
    return done.output


def test_from_a_contract_to_a_rebased_patch(
    files: dict[str, str], holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DSN", holdfast_dsn)
    assert "invoice version 1: new" in ran("publish", files["contract1"], *BY)
    assert "invoice version 1: unchanged" in ran("publish", files["contract1"], *BY)
    assert "sys:gate:pay" in ran("draw", "invoice", "--bare")
    assert "SLOT_UNKNOWN" in ran("check", files["wrong"], expected=2)
    saved = json.loads(ran("draft", files["patch"], *BY, "--reason", "audit", "--json"))
    assert ran("check", "invoice") == ""
    done = json.loads(ran("publish", "invoice", *BY, "--etag", saved["etag"], "--json"))
    assert "usr:review:check" in ran("draw", "invoice")
    again = json.loads(ran("restore", "invoice", str(done["version"]), *BY, "--json"))
    assert "archived" in ran("archive", "invoice", str(again["version"]), *BY)
    ran("publish", files["contract2"], *BY)
    [told] = json.loads(ran("rebase", "invoice", "--dry-run", "--all-tenants", *BY, "--json"))
    assert told["status"] == "fits"
    assert "published" in ran("rebase", "invoice", *BY)
    shown = ran("show", "invoice")
    assert "patch_rebased" in shown
    assert [one["version"] for one in json.loads(ran("list", "--json"))] == [2]
    ran("draft", files["patch"], *BY)
    assert "dropped" in ran("draft", "invoice", "--drop", *BY)


@pytest.fixture(params=["here", "there"])
def where(request: pytest.FixtureRequest, holdfast_dsn: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    if request.param == "here":
        monkeypatch.setenv("HOLDFAST_DSN", holdfast_dsn)
        return ()
    monkeypatch.setenv("HOLDFAST_DSN", "postgresql://nobody@127.0.0.1:1/none")
    return ("--url", request.getfixturevalue("url"))


def test_a_template_with_a_table_from_its_file_to_the_graph_in_force(tmp_path: Path, where: tuple[str, ...]) -> None:
    text = read_template("invoice_approval")
    file, newer = tmp_path / "invoice.yaml", tmp_path / "newer.yaml"
    file.write_text(text, encoding="utf-8")
    [table] = load_contracts(text).tables
    newer.write_text(table_yaml(replace(table, version=2, hit="all")), encoding="utf-8")
    assert "There are no decision tables." in ran("tables", *where)
    told = ran("publish", str(file), *BY, *where)
    assert "table invoice_limits version 1: new" in told
    assert "invoice version 1: new" in told
    assert "draft it first" in told
    assert "table invoice_limits version 1: unchanged" in ran("publish", str(file), *BY, *where)
    ran("draft", str(file), *BY, *where)
    ran("publish", "invoice", *BY, *where)
    drawn = ran("draw", "invoice", *where)
    assert "usr:review:limits" in drawn
    assert "table invoice_limits version 2: new" in ran("publish", str(newer), *BY, *where)
    assert ran("draw", "invoice", *where) == drawn
    [listed] = json.loads(ran("tables", "--json", *where))
    assert (listed["name"], listed["version"], listed["created_by"]) == ("invoice_limits", 2, "ann")
    assert "hit: all" in ran("tables", "invoice_limits", *where)
    assert "hit: all" not in ran("tables", "invoice_limits", "--version", "1", *where)
    assert json.loads(ran("tables", "invoice_limits", "--json", *where))["version"] == 2


def test_a_patch_of_the_file_that_cannot_be_published_is_told(tmp_path: Path, where: tuple[str, ...]) -> None:
    file = tmp_path / "invoice.yaml"
    text = read_template("invoice_approval").replace("table: invoice_limits}", "table: other_limits}")
    file.write_text(text, encoding="utf-8")
    assert "PATCH_TABLE_UNKNOWN" in ran("publish", str(file), *BY, *where, expected=2)


def test_a_server_tells_and_does_the_same(
    files: dict[str, str], holdfast_dsn: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ("--url", url)
    monkeypatch.setenv("HOLDFAST_DSN", "postgresql://nobody@127.0.0.1:1/none")
    assert "invoice version 1: new" in ran("publish", files["contract1"], *BY, *there)
    saved = json.loads(ran("draft", files["patch"], *BY, *there, "--json"))
    assert json.loads(ran("draft", "invoice", *there, "--json")) == saved
    ran("draft", files["patch"], *BY, *there, "--etag", "another", expected=5)
    assert "SLOT_UNKNOWN" in ran("check", files["wrong"], *there, expected=2)
    first = json.loads(ran("publish", "invoice", *BY, *there, "--etag", saved["etag"], "--json"))["version"]
    second = json.loads(ran("restore", "invoice", str(first), *BY, *there, "--json"))["version"]
    ran("archive", "invoice", str(second), *BY, *there)
    ran("publish", files["contract2"], *BY, *there)
    ran("rebase", "invoice", *BY, *there, "--all-tenants", expected=6)
    assert "published" in ran("rebase", "invoice", *BY, *there)
    ran("draft", files["patch"], *BY, *there)
    assert "dropped" in ran("draft", "invoice", "--drop", *BY, *there)
    looks = (("list",), ("list", "--json"), ("show", "invoice"), ("show", "invoice", "--json"))
    drawings = (("draw", "invoice"), ("draw", "invoice", "--bare"), ("draw", "invoice", "--version", str(first)))
    ran("draft", files["patch"], *BY, *there)
    sides = (("--from", "envelope", "--to", str(first)), ("--from", str(first), "--to", "draft"))
    differences = [("diff", "invoice", *words, *form) for words in sides for form in ((), ("--json",))]
    told = [ran(*words, *there) for words in (*looks, *drawings, *differences)]
    monkeypatch.setenv("HOLDFAST_DSN", holdfast_dsn)
    assert [ran(*words) for words in (*looks, *drawings, *differences)] == told


def test_published_graphs_are_compared_and_simulated(
    files: dict[str, str], tmp_path: Path, holdfast_dsn: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DSN", holdfast_dsn)
    ran("publish", files["contract1"], *BY)
    ran("draft", files["patch"], *BY)
    told = ran("diff", "invoice", "--from", "envelope", "--to", "draft")
    assert told.splitlines()[0] == "invoice: envelope 1 → draft for envelope 1"
    assert "slot review: empty → filled" in told
    asked = ("simulate", "invoice", "--do", "send", "--do", "check=approved")
    assert "TASK_UNKNOWN" in ran(*asked, expected=1)
    for there in ((), ("--url", url)):
        way = ran(*asked, "--version", "draft", *there)
        assert way.splitlines()[-1] == "completed in the state 'paid'"
        assert "usr:review:check [approval]" in way
        ran("diff", "invoice", "--from", "envelope", "--to", "draft", "--html", "page.html", *there)
        assert Path("page.html").read_text(encoding="utf-8").count("<svg") == 2
        ran("diff", "invoice", "--from", "envelope", "--to", "9", *there, expected=4)
        ran(*asked, "--version", "9", *there, expected=4)
    ran("diff", "invoice", "--from", "draft", "--to", "1", expected=2)
    ran("simulate", "invoice", "--version", "envelope", expected=2)


@pytest.mark.parametrize(
    "words",
    [
        ("diff", "invoice"),
        ("diff", "invoice", "--from", "1"),
        ("diff", "invoice", "other", "--from", "1", "--to", "2"),
        ("diff", "contract1.yaml", "--from", "1", "--to", "2"),
        ("simulate", "contract1.yaml", "--version", "1"),
        ("simulate", "invoice", "--type", "invoice"),
    ],
)
def test_files_and_types_are_not_mixed(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran(*words, expected=2)
