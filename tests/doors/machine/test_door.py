"""Machines come in by the registry like every other definition: from Python, from the store, from a request."""

from __future__ import annotations

import json

import msgspec
import pytest
from machine_samples import VENDOR, VENDOR_POLICY, blueprint, documents, policy, vendor

from holdfast import Machine, code_of, mermaid_of, picture_of
from holdfast.doors.machine import MachineSource
from holdfast.doors.machine.definition import require_policy_target
from holdfast.doors.registry import load_source, media_types, open_source, receive, source_of
from holdfast.doors.source import JSON, Source
from holdfast.errors import DefinitionError, NotFound
from holdfast.graph.compile import compile_graph


def test_a_machine_is_a_source_with_a_number() -> None:
    source = source_of(vendor())
    assert isinstance(source, MachineSource)
    assert isinstance(source, Source)
    assert (source.name, source.version, source.numbered(5).version) == ("prod.vendorregistration", 1, 5)
    assert source.numbered(5).lower() == vendor().graph(5)
    plan, rules = documents()
    assert source.numbered(5).stored == {"blueprint": plan, "policy": rules, "version": 5}
    assert load_source(vendor()) is not None


def test_what_is_stored_is_read_back() -> None:
    stored = json.loads(json.dumps(MachineSource(vendor(), 7).stored))
    again = open_source(stored)
    assert isinstance(again, MachineSource)
    assert (again.version, again.lower(), again.machine.hash) == (7, vendor().graph(7), vendor().hash)
    assert source_of(stored).version == 7


def test_it_is_printed_and_drawn() -> None:
    assert json.loads(code_of(vendor())) == dict(zip(("blueprint", "policy"), documents(), strict=True))
    assert picture_of(MachineSource(vendor(), 2)).startswith("prod.vendorregistration version 2\n")
    assert "Submitted<br/>state" in mermaid_of(vendor())


def test_a_request_may_bring_a_machine() -> None:
    document = source_of(vendor()).document()
    assert (document.media, document.file) == (JSON, "prod.vendorregistration")
    received = receive(document.body, JSON, "posted")
    [source] = received.sources
    assert isinstance(source, MachineSource)
    assert (source.machine.hash, received.findings) == (vendor().hash, ())


def test_a_request_with_problems_is_refused_with_all_of_them() -> None:
    body = json.dumps({"blueprint": blueprint(version=0), "policy": policy(stale="P1Y")}).encode()
    with pytest.raises(DefinitionError) as caught:
        receive(body, JSON, "posted")
    assert [(each.file, each.place) for each in caught.value.diagnostics] == [
        ("posted", "blueprint.version"),
        ("posted", "policy.stale"),
    ]


def test_other_json_is_still_a_graph() -> None:
    body = json.dumps({"name": "g", "entry": "a", "nodes": [{"id": "a", "kind": "end"}]}).encode()
    assert [source.name for source in receive(body, JSON, "posted").sources] == ["g"]
    with pytest.raises(DefinitionError, match="GRAPH_INVALID"):
        receive(b'{"nodes": 5}', JSON, "posted")
    assert media_types().count(JSON) == 1


def test_unknown_keys_beside_both_are_a_finding() -> None:
    with pytest.raises(DefinitionError, match="no key 'policies'"):
        source_of(Machine.parse({"blueprint": blueprint(), "policies": []}))


def test_load_takes_paths_text_bytes_and_data() -> None:
    for plan, rules in [
        (VENDOR, VENDOR_POLICY),
        (str(VENDOR), str(VENDOR_POLICY)),
        (VENDOR.read_text(), VENDOR_POLICY.read_bytes()),
        documents(),
    ]:
        machine = Machine.load(plan, rules)
        assert machine.hash == vendor().hash
        assert (machine.environment, machine.definition, machine.blueprint_version) == ("prod", "vendorregistration", 1)
        assert (machine.name, machine.warnings) == ("prod.vendorregistration", ())
    assert Machine.load(vendor().code()).hash == vendor().hash
    assert isinstance(source_of(machine), MachineSource)


def test_findings_of_files_name_them(tmp_path: object) -> None:
    with pytest.raises(NotFound, match="FILE_NOT_FOUND"):
        Machine.load(f"{tmp_path}/nowhere.json")
    with pytest.raises(DefinitionError) as caught:
        Machine.load(VENDOR_POLICY)
    assert {(each.file, each.line > 0) for each in caught.value.diagnostics} == {(str(VENDOR_POLICY), True)}


def test_a_policy_alone_tells_its_machine() -> None:
    assert require_policy_target(VENDOR_POLICY.read_text()) == "vendorregistration"
    with pytest.raises(DefinitionError, match="MACHINE_KEY_MISSING"):
        require_policy_target({"for": {}})


def test_problems_are_data() -> None:
    with pytest.raises(DefinitionError) as caught:
        Machine.load({})
    assert msgspec.to_builtins(caught.value.diagnostics[0])["code"] == "MACHINE_KEY_MISSING"


def test_the_effective_version_is_that_of_the_graph() -> None:
    assert compile_graph(source_of(vendor()).lower()).version == 1
    assert compile_graph(MachineSource(vendor(), 9).lower()).version == 9
