"""Contracts come in by the registry like every other definition, and what is stored is read back."""

from __future__ import annotations

import json

import pytest
from contract_samples import house_rules, invoice
from random_contracts import random_contract

from holdfast import Contract, Patch, code_of, load_contracts, mermaid_of, picture_of
from holdfast.doors.envelope.door import ContractSource, open_patch, store_patch
from holdfast.doors.envelope.lowering import lower_contract
from holdfast.doors.envelope.written import contract_hash
from holdfast.doors.registry import load_source, open_source, source_of
from holdfast.errors import DefinitionError
from holdfast.graph.compile import compile_graph


def test_a_contract_is_a_source() -> None:
    source = source_of(invoice())
    assert isinstance(source, ContractSource)
    assert (source.name, source.version) == ("document:invoice", 1)
    assert source.lower() == lower_contract(invoice())
    again = open_source(json.loads(json.dumps(source.stored)))
    assert isinstance(again, ContractSource)
    assert (again.contract, again.stored) == (invoice(), source.stored)


def test_it_is_printed_drawn_and_sent() -> None:
    assert code_of(invoice()).startswith("from holdfast import Contract\n")
    assert "sys:gate:approve" in mermaid_of(invoice())
    assert picture_of(invoice()).startswith("document:invoice version 1\n")
    document = source_of(invoice()).document()
    assert (document.media, document.file) == ("application/yaml", "invoice")
    assert load_contracts(document.body.decode()).contracts == (invoice(),)


def test_a_patch_is_stored_and_read_back() -> None:
    assert open_patch(json.loads(json.dumps(store_patch(house_rules())))) == house_rules()


def test_what_is_not_built_is_refused() -> None:
    for written in (Contract("a"), Patch("a", 1)):
        with pytest.raises(DefinitionError, match="FLOW_NOT_BUILT"):
            source_of(written)
    assert isinstance(load_source(Contract("a").state("s", ends=True)), ContractSource)


def test_every_sound_contract_has_an_envelope_that_compiles() -> None:
    hashes: set[str] = set()
    for seed in range(200):
        contract = random_contract(seed)
        compiled = compile_graph(lower_contract(contract))
        assert compiled.name == f"document:{contract.type}"
        hashes.add(contract_hash(contract))
    assert len(hashes) > 190
