"""Random patches: no crash, every refusal has a place, every accepted one keeps what the envelope promises.

`HOLDFAST_PROFILE=long` compiles 100,000 of them.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from brute_force import fewest_by_trying
from random_envelopes import TABLES, broken, random_contract, random_patch, shuffled_contract, shuffled_patch

from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.findings import Finding
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.slots import ContractIndex, resolve_slots
from holdfast.errors import DefinitionError
from holdfast.graph.approvals import fewest_approvals
from holdfast.graph.compiled import Compiled, dump_compiled, graph_of
from holdfast.graph.integrity import find_breaches
from holdfast.graph.loading import load_compiled
from holdfast.graph.scopes import find_scopes
from holdfast.graph.topology import read_topology
from holdfast.graph.windows import WINDOWS

PATCHES = {"short": 2_000, "long": 100_000}[os.environ.get("HOLDFAST_PROFILE", "short")]
SHARES = 8  # tests, so that they run beside each other


@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_is_accepted_keeps_the_envelope(share: int) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(share, PATCHES, SHARES):
        outcomes.update(judge(seed))
    # Both sides must have been tried, or the test would say nothing.
    assert outcomes["accepted"] > PATCHES / SHARES / 5, outcomes
    assert outcomes["refused"] > PATCHES / SHARES / 5, outcomes
    assert outcomes["demanding"] > PATCHES / SHARES / 50, outcomes


def judge(seed: int) -> list[str]:
    random = Random(seed)
    contract = random_contract(random)
    patch = random_patch(random, contract, filled=random.random() < 0.3)
    if random.random() < 0.5:
        patch = broken(random, patch)
    compiled, findings = attempt(contract, patch)
    for found in findings:
        assert all([found.place, found.code, found.message, found.hint]), (seed, found)
    if compiled is None:
        assert any(found.severity == "error" for found in findings), seed
        return ["refused", *{found.code for found in findings}]
    keeps(contract, patch, compiled, seed)
    again = compile_effective(shuffled_contract(random, contract), shuffled_patch(random, patch), tables=TABLES)
    assert dump_compiled(again) == dump_compiled(compiled), seed
    demanding = any(slot.approvals for slot in resolve_slots(ContractIndex(contract)).values())
    return ["accepted", *(["demanding"] if demanding else [])]


def attempt(contract: ContractDefinition, patch: PatchDefinition) -> tuple[Compiled | None, tuple[Finding, ...]]:
    try:
        return compile_effective(contract, patch, tables=TABLES), ()
    except DefinitionError as error:
        return None, error.diagnostics


def keeps(contract: ContractDefinition, patch: PatchDefinition, compiled: Compiled, seed: int) -> None:
    assert list(find_breaches(compiled)) == [], seed
    assert load_compiled(dump_compiled(compiled), compiled.hash) == compiled, seed
    assert all(depth == 0 for node, depth in compiled.depth.items() if node.startswith("sys:")), seed
    for slot in resolve_slots(ContractIndex(contract)).values():
        for node, owner in compiled.slot_map.items():
            if owner == slot.name:
                assert WINDOWS.index(compiled.edit_windows[node]) >= WINDOWS.index(slot.window), seed  # type: ignore[arg-type]
                assert (node in compiled.stable_nodes) == slot.stable, seed
    for name in compiled.config.get("filled", ()):
        fewest = fewest_by_trying(compiled, name)
        assert fewest is not None, seed
        assert fewest >= compiled.config["envelope"]["slots"][name].get("approvals", 0), seed
        assert fewest == fewest_by_bundles(compiled, name), seed


def fewest_by_bundles(compiled: Compiled, slot: str) -> int | None:
    topology = read_topology(graph_of(compiled))
    inside = [node for node, owner in compiled.slot_map.items() if owner == slot]
    entry, out = f"sys:slot:{slot}:in", f"sys:slot:{slot}:out"
    found = fewest_approvals(topology, find_scopes(topology), entry, out, inside)
    return None if found is None else found.count
