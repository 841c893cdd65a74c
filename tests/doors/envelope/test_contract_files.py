"""Files of contracts and patches: what they may hold, and hostile text, refused in time and with a reason."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from contract_samples import house_rules, invoice
from typer.testing import CliRunner

from holdfast import load_contracts
from holdfast.cli.app import app
from holdfast.cli.sources import read_sources
from holdfast.doors.envelope.decision_tables.model import Column, Row, TableDefinition
from holdfast.doors.envelope.printing import contract_yaml, patch_yaml
from holdfast.doors.envelope.reading.load import is_contract_file
from holdfast.doors.yaml.reading import LARGEST
from holdfast.doors.yaml.tree import Mark
from holdfast.errors import DefinitionError

SMALL = "contract:\n  type: note\n  states: [{name: a, ends: true}]\n"

TWICE = f"contracts:\n  - {SMALL[12:]}  - {SMALL[12:]}".replace("\n  states", "\n    states")
PATCH = "patch:\n  contract: note\n  envelope: 1\n"


def problems(text: str) -> list[tuple[int, int, str]]:
    return [(each.line, each.column, each.code) for each in load_contracts(text, name="f.yaml").problems]


def test_a_file_holds_contracts_patches_and_tables() -> None:
    one = contract_yaml(invoice()).replace("contract:", "contracts:\n  -", 1).replace("\n  -\n  ", "\n  - ", 1)
    lines = one.splitlines()
    text = "\n".join([*lines[:2], *(f"  {line}" for line in lines[2:])]) + "\n" + patch_yaml(house_rules())
    table = "{name: limits, columns: [{field: note, type: string}], rows: [{then: {who: boss}}]}"
    read = load_contracts(f"{text}tables:\n  - {table}\n").require_sound()
    assert (read.contracts, read.patches) == ((invoice(),), (house_rules(),))
    columns, rows = (Column(field="note", type="string"),), (Row(then={"who": "boss"}),)
    assert read.tables == (TableDefinition(name="limits", columns=columns, rows=rows),)


@pytest.mark.parametrize(
    ("text", "line", "column", "code"),
    [
        ("contracts: []\n", 1, 12, "CONTRACT_VALUE_INVALID"),
        ("contracts: {}\n", 1, 12, "CONTRACT_TYPE_WRONG"),
        ("patches: 5\n", 1, 10, "CONTRACT_TYPE_WRONG"),
        ("contract:\n", 1, 1, "CONTRACT_TYPE_WRONG"),
        ("- contract\n", 1, 1, "CONTRACT_TYPE_WRONG"),
        (SMALL + "workflows: []\n", 4, 1, "CONTRACT_KEY_UNKNOWN"),
        (TWICE, 4, 11, "CONTRACT_DUPLICATE"),
        (SMALL.replace("ends", "end"), 3, 22, "CONTRACT_KEY_UNKNOWN"),
        (SMALL + "  verbs: [{name: go, from: a, to: a, when: entity.x > 1}]\n", 4, 44, "CONTRACT_EXPRESSION_INVALID"),
        (SMALL + '  verbs: [{name: go, from: a, to: a, when: "now > 1"}]\n', 4, 49, "CONTRACT_EXPRESSION_INVALID"),
        (f"{PATCH}  slots: {{s: {{edges: [{{from: [a, 5], to: b}}]}}}}\n", 4, 34, "PATCH_TYPE_WRONG"),
        ("contract: &a\n  type: *a\n", 2, 9, "YAML_ALIAS"),
        ("", 1, 1, "YAML_EMPTY"),
        ("contract: [\n", 2, 1, "YAML_SYNTAX"),
        ("contract: {type: !!python/object:os.system x}\n", 1, 18, "YAML_TAG"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_line_and_a_column(text: str, line: int, column: int, code: str) -> None:
    assert (line, column, code) in problems(text)
    with pytest.raises(DefinitionError):
        load_contracts(text).require_sound()


def test_sound_ones_are_loaded_beside_broken_ones() -> None:
    read = load_contracts(f"{SMALL}patch: {{contract: note, envelope: no}}\n")
    assert ([contract.type for contract in read.contracts], read.patches) == (["note"], ())
    assert [problem.code for problem in read.problems] == ["PATCH_TYPE_WRONG"]


def test_a_place_in_the_model_is_found_in_the_file() -> None:
    text = "patch:\n  contract: note\n  envelope: 1\n  slots:\n    s:\n      nodes:\n        - {id: a, kind: split}\n"
    text += "      edges:\n        - {from: [in, a], to: [a, out]}\n        - {from: a, to: out, when: 'true'}\n"
    [draft] = load_contracts(text).drafts
    assert len(draft.patch.slots["s"].edges) == 5
    assert draft.locate(("slots", "s", "edges", 3, "target")) == Mark(9, 31)
    assert draft.locate(("slots", "s", "edges", 4, "when")) == Mark(10, 36, 1)
    assert draft.locate(("slots", "s", "nodes", 0, "kind")) == Mark(7, 25, 0)
    assert draft.locate(("slots", "s", "edges", 9)).line == 9
    assert draft.locate(("nowhere",)).line == 2


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
HOSTILE = {
    "a bomb of aliases": f"{BOMB}contract: *a9\n",
    "a bomb within a contract": "contract:\n" + "".join(f"  {line}\n" for line in BOMB.splitlines()),
    "ten thousand nodes": "patch:\n  contract: note\n  envelope: 1\n  slots:\n    s:\n      nodes:\n"
    + "        - {id: a, kind: split}\n" * 10_000,
    "three thousand nodes": "patch:\n  contract: note\n  envelope: 1\n  slots:\n    s:\n      nodes:\n"
    + "".join(f"        - {{id: n{n}, kind: split}}\n" for n in range(3_000)),
    "deep nesting": "contract: " + "[" * 100_000,
    "a huge text": f"contract:\n  type: note\n  about: {'x' * 900_000}\n",
    "too many bytes": "contract:\n  type: note\n  about: " + "x" * LARGEST,
    "a huge name": f"contract: {{type: {'x' * 500_000}, states: [{{name: a, ends: true}}]}}\n",
    "a huge expression": f"{SMALL}  policies: [{{name: p, when: {'(' * 400}}}]\n",
    "five thousand states": "contract:\n  type: note\n  states:\n" + "    - {name: a}\n" * 5_000,
    "two hundred equal states": "contract:\n  type: note\n  states:\n" + "    - {name: a}\n" * 200,
    "a thousand verbs to nowhere": f"{SMALL}  verbs:\n"
    + "".join(f"    - {{name: v{n}, from: x{n}, to: y{n}}}\n" for n in range(1_000)),
    "a control character": "contract:\n  type: note\n  about: \a\n",
    "an escaped control character": f'{SMALL}  about: "\\u001b[31m"\n',
    "an escaped NUL": f'{SMALL}  about: "\\0"\n',
    "half a character": f'{SMALL}  about: "\\ud800"\n',
    "unknown keys without end": f"{SMALL}" + "".join(f"  key{n}: 1\n" for n in range(5_000)),
}

CODES = {
    "ten thousand nodes": "YAML_TOO_COMPLEX",
    "three thousand nodes": "PATCH_TOO_LARGE",
    "too many bytes": "YAML_TOO_LARGE",
    "deep nesting": "YAML_TOO_DEEP",
    "a bomb of aliases": "YAML_TOO_COMPLEX",
    "five thousand states": "CONTRACT_VALUE_INVALID",
    "an escaped NUL": "YAML_CHARACTER",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_time(name: str) -> None:
    begin = time.process_time()
    read = load_contracts(HOSTILE[name])
    assert time.process_time() - begin < 10
    assert read.problems
    assert len(read.problems) <= 1_000
    assert all(len(problem.message) < 1_000 for problem in read.problems)
    assert (read.contracts, read.patches) == ((), ())
    assert CODES.get(name, read.problems[0].code) == read.problems[0].code


def test_a_bomb_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        load_contracts(HOSTILE["a bomb of aliases"])
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (SMALL, True),
        ('{"patch": {}}', True),
        ("# a comment\n---\npatches: []\n", True),
        ("tables: []\n", True),
        ("workflows: []\n", False),
        ("", False),
        ("a: [", False),
        ("- contracts\n", True),
        ("\a", False),
        ("contracts", True),
    ],
)
def test_the_first_key_says_what_a_file_is(text: str, is_one: bool) -> None:
    assert is_contract_file(text) == is_one


def run(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_validate_reads_contracts_and_patches(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(contract_yaml(invoice()))
    (tmp_path / "b.yaml").write_text(patch_yaml(house_rules()))
    patched = f"{tmp_path}/b.yaml: patch of invoice version 1, 2 slots\n"
    assert run("validate", tmp_path) == (
        0,
        f"{tmp_path}/a.yaml: contract invoice version 1, 4 states\n{patched}",
    )
    (tmp_path / "b.yaml").write_text("patch: {contract: invoice}\n")
    code, output = run("validate", tmp_path)
    assert code == 1
    assert output.startswith(f"{tmp_path}/b.yaml:1:8: PATCH_KEY_MISSING The patch has no 'envelope'.")


def test_contracts_are_not_published_as_flows(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL)
    with pytest.raises(DefinitionError) as caught:
        read_sources([str(tmp_path / "a.yaml")])
    assert ["CONTRACT_NO_FLOW" in str(each) for each in caught.value.diagnostics] == [True]
