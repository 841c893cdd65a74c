"""Contracts and patches are printed as YAML and as code, and read back as the same ones, with the same hash.

`HOLDFAST_PROFILE=long` goes through 5,000 of each.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from contract_samples import house_rules, invoice
from random_contracts import random_contract, random_patch

from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.printing import contract_code, contract_yaml, patch_code, patch_yaml
from holdfast.doors.envelope.reading.load import load_contracts, require_contract, require_patch
from holdfast.doors.envelope.written import contract_data, contract_hash, patch_data, patch_hash

LONG = os.environ.get("HOLDFAST_PROFILE") == "long"
SEEDS = range(5_000 if LONG else 200)
CHUNKS = [SEEDS[begin::20] for begin in range(20)]


def run(code: str, name: str) -> Any:
    made: dict[str, Any] = {}
    exec(code, made)
    return made[name]


def check_contract(contract: ContractDefinition) -> None:
    assert require_contract(contract_data(contract)) == contract
    read = load_contracts(contract_yaml(contract)).require_sound().contracts
    assert read == (contract,)
    assert contract_hash(read[0]) == contract_hash(contract)


def check_patch(patch: PatchDefinition) -> None:
    assert require_patch(patch_data(patch)) == patch
    read = load_contracts(patch_yaml(patch)).require_sound().patches
    assert read == (patch,)
    assert patch_hash(read[0]) == patch_hash(patch)


def test_the_samples_come_back() -> None:
    check_contract(invoice())
    check_patch(house_rules())
    assert run(contract_code(invoice()), "contract") == invoice()
    assert run(patch_code(house_rules()), "patch") == house_rules()


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_random_contracts_come_back(seeds: range) -> None:
    for seed in seeds:
        contract = random_contract(seed)
        check_contract(contract)
        assert run(contract_code(contract), "contract") == contract, seed


@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_random_patches_come_back(seeds: range) -> None:
    for seed in seeds:
        patch = random_patch(seed)
        check_patch(patch)
        assert run(patch_code(patch), "patch") == patch, seed


def test_random_ones_differ() -> None:
    assert len({contract_hash(random_contract(seed)) for seed in range(100)}) > 90
    assert len({patch_hash(random_patch(seed)) for seed in range(100)}) > 90


def test_yaml_is_written_for_people() -> None:
    text = contract_yaml(invoice())
    assert text.startswith("contract:\n  type: invoice\n  version: 1\n")
    assert "    - {name: grand_total, type: money}\n" in text
    assert "  amendment:\n    states: [active]\n    drift: draft\n" in text
    assert max(len(line) for line in text.splitlines()) <= 120
