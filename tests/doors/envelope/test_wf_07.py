"""WF-07, as far as the compiler: only what was compiled from an envelope and a patch runs, and only unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from envelope_samples import BOTH, INVOICE, LIMITS, ONE, edge, patch, step
from msgspec.structs import replace

from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.lowering import lower_contract
from holdfast.doors.envelope.model import SlotPatch
from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph
from holdfast.graph.compiled import dump_compiled, hash_compiled, sealed
from holdfast.graph.loading import load_compiled
from holdfast.graph.rules import RULES


def refusal(data: Any, expected: str | None = None) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        load_compiled(data, expected)
    assert caught.value.hint
    return caught.value


def test_what_was_compiled_comes_back_as_it_was() -> None:
    compiled = compile_effective(INVOICE, patch(BOTH))
    assert compiled.hash == hash_compiled(compiled)
    assert load_compiled(dump_compiled(compiled), compiled.hash) == compiled


def test_keys_in_another_order_are_the_same_artifact() -> None:
    """JSON in a database keeps its keys by their length."""
    compiled = compile_effective(INVOICE, patch(BOTH))
    dumped = dump_compiled(compiled)
    for part in ("nodes", "edges", "regions"):
        dumped[part] = dict(sorted(dumped[part].items(), key=lambda item: (len(item[0]), item[0]), reverse=True))
    assert load_compiled(dumped, compiled.hash) == compiled


def test_it_says_which_envelope_and_which_patch_it_was_made_of() -> None:
    one, both = (compile_effective(INVOICE, patch(steps)) for steps in (ONE, BOTH))
    changed = compile_effective(replace(INVOICE, policies=()), patch(ONE))
    assert one.config["envelope"]["hash"] == both.config["envelope"]["hash"] != changed.config["envelope"]["hash"]
    assert one.config["patch"]["hash"] == changed.config["patch"]["hash"] != both.config["patch"]["hash"]
    assert len({one.hash, both.hash, changed.hash}) == 3


def test_a_table_that_changed_makes_another_artifact() -> None:
    steps = SlotPatch(nodes=(step("it", "rule", table_version=1),), edges=(edge("in>it"), edge("it>out")))
    newest = replace(steps, nodes=(step("it", "rule"),))
    pinned, moved = (compile_effective(INVOICE, patch(written), tables=LIMITS) for written in (steps, newest))
    assert pinned.hash != moved.hash


@pytest.mark.parametrize("kind", ["envelope", "org_patch", "effective"])
def test_no_graph_of_a_document_is_published_as_it_is(kind: str) -> None:
    assert not RULES[kind].is_published


def test_an_envelope_does_not_pass_for_an_effective_graph() -> None:
    disguised = compile_graph(replace(lower_contract(INVOICE), kind="effective"))
    assert refusal(dump_compiled(disguised), disguised.hash).code == "ENVELOPE_BROKEN"


def test_a_graph_of_ones_own_does_not_pass_for_an_effective_one() -> None:
    own = compile_graph(replace(lower_contract(INVOICE), kind="effective", config={}))
    assert refusal(dump_compiled(own), own.hash).code == "ENVELOPE_BROKEN"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 9},
        {"name": "document:order"},
        {"stable_nodes": []},
        {"edit_windows": {}},
        {"slot_map": {}},
        {"config": {}},
        {"compiler_version": "0"},
    ],
)
def test_an_artifact_edited_by_hand_does_not_have_its_hash(change: dict[str, Any]) -> None:
    compiled = compile_effective(INVOICE, patch(BOTH))
    assert refusal(dump_compiled(compiled) | change, compiled.hash).code == "WORKFLOW_HASH_MISMATCH"


def test_nor_does_one_with_a_hash_of_its_own() -> None:
    compiled = compile_effective(INVOICE, patch(BOTH))
    edited = sealed(replace(compiled, version=9))
    assert refusal(dump_compiled(edited), compiled.hash).code == "WORKFLOW_HASH_MISMATCH"
