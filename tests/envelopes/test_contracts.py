"""Contracts in the database: published once, read back whole, with the graph of documents without a patch."""

from __future__ import annotations

import asyncio

import pytest
from document_office import approved_by, invoice, without_review
from msgspec.structs import replace

from holdfast import Engine, Flow
from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.model import ContractDefinition
from holdfast.errors import Conflict, DefinitionError, HoldfastError, NotFound, Refused

pytestmark = pytest.mark.anyio


async def refusal(attempt: object) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        await attempt  # type: ignore[misc]
    assert caught.value.hint
    return caught.value


async def test_a_contract_comes_back_as_it_was_with_its_envelope(engine: Engine) -> None:
    done = await engine.publish_contract(invoice(), by="ann", reason="first")
    found = await engine.contract("invoice")
    assert (done.type, done.version, done.new, done.default) == ("invoice", 1, True, 1)
    assert found.contract == invoice()
    assert found.hash == done.hash
    assert found.envelope.kind == "envelope"
    assert found.envelope.name == "document:invoice"
    assert {node.id for node in found.envelope.nodes} >= {"sys:start", "sys:gate:approve", "sys:end"}


async def test_documents_without_a_patch_run_by_the_bare_envelope(engine: Engine) -> None:
    await engine.publish_contract(invoice(), by="ann")
    found = await engine.effective("invoice")
    assert found.is_default
    assert found.envelope == 1
    assert found.graph == compile_effective(invoice(), version=found.version)


async def test_a_contract_that_demands_approvals_has_no_graph_of_its_own(engine: Engine) -> None:
    done = await engine.publish_contract(invoice(approvals=1), by="ann")
    assert done.default is None
    assert "approve" in (done.note or "")
    assert (await refusal(engine.effective("invoice"))).code == "EFFECTIVE_UNKNOWN"


async def test_the_same_content_again_changes_nothing(engine: Engine) -> None:
    first = await engine.publish_contract(invoice(), by="ann")
    shuffled = replace(invoice(), gates=tuple(reversed(invoice().gates)))
    again = await engine.publish_contract(shuffled, by="ben")
    assert first.new
    assert not again.new
    assert again.hash == first.hash
    assert [event.by for event in await engine.contract_events("invoice")] == ["ann"]


async def test_the_same_version_with_other_content_is_taken(engine: Engine) -> None:
    await engine.publish_contract(invoice(), by="ann")
    refused = await refusal(engine.publish_contract(without_review(1), by="ann"))
    assert isinstance(refused, Conflict)
    assert refused.code == "VERSION_TAKEN"
    assert (await engine.contract("invoice")).contract == invoice()


async def test_a_lower_version_is_refused_unless_it_was_there(engine: Engine) -> None:
    await engine.publish_contract(invoice(2), by="ann")
    assert (await refusal(engine.publish_contract(invoice(1), by="ann"))).code == "CONTRACT_OUTDATED"
    await engine.publish_contract(invoice(3), by="ann")
    assert not (await engine.publish_contract(invoice(2), by="ann")).new


async def test_nothing_is_stored_of_a_contract_that_is_wrong(engine: Engine) -> None:
    wrong = ContractDefinition(type="invoice", states=invoice().states[:1])
    refused = await refusal(engine.publish_contract(wrong, by="ann"))
    assert isinstance(refused, DefinitionError)
    assert refused.diagnostics
    assert (await refusal(engine.contract("invoice"))).code == "CONTRACT_UNKNOWN"


async def test_whoever_publishes_is_named(engine: Engine) -> None:
    assert (await refusal(engine.publish_contract(invoice(), by=""))).code == "ACTOR_MISSING"


async def test_many_publish_the_same_contract_at_once(engine: Engine) -> None:
    done = await asyncio.gather(*(engine.publish_contract(invoice(), by=f"p{n}") for n in range(8)))
    assert [one.new for one in done].count(True) == 1
    assert len(await engine.contract_events("invoice")) == 1


async def test_many_publish_other_contents_at_once_and_one_wins(engine: Engine) -> None:
    contracts = [invoice(approvals=n) for n in range(6)]
    done = await asyncio.gather(*(engine.publish_contract(one, by="ann") for one in contracts), return_exceptions=True)
    codes = [one.code for one in done if isinstance(one, Conflict)]
    assert codes == ["VERSION_TAKEN"] * 5


async def test_contracts_are_listed_in_their_newest_version(engine: Engine) -> None:
    for one in (invoice(1), invoice(2), invoice(type="order")):
        await engine.publish_contract(one, by="ann")
    assert [(one.type, one.version) for one in await engine.contracts()] == [("invoice", 2), ("order", 1)]
    assert [one.type for one in await engine.contracts(after="invoice")] == ["order"]
    assert [one.version for one in await engine.contract_versions("invoice")] == [2, 1]
    assert [one.version for one in await engine.contract_versions("invoice", before=2)] == [1]


async def test_those_of_the_system_are_for_all_and_others_for_one(engine: Engine) -> None:
    acme, globex, system = (engine.for_org(org) for org in ("acme", "globex", "_system"))
    await system.publish_contract(invoice(), by="vendor")
    await acme.publish_contract(without_review(1), by="ann")
    assert (await globex.contract("invoice")).org == "_system"
    assert (await acme.contract("invoice")).contract == without_review(1)
    assert [one.org for one in await acme.contracts()] == ["acme"]
    assert (await globex.effective("invoice")).org == "_system"


async def test_a_patch_stays_in_force_when_a_contract_of_ones_own_is_published(engine: Engine) -> None:
    await engine.publish_contract(invoice(1), by="ann")
    await engine.save_patch_draft(approved_by("finance"), by="ann")
    patch = await engine.publish_patch("invoice", by="ann")
    done = await engine.publish_contract(invoice(2), by="ann")
    assert done.default is None
    assert "rebase" in (done.note or "")
    assert (await engine.effective("invoice")).version == patch.version
    await engine.archive_patch("invoice", patch.version, by="ann")
    assert (await engine.publish_contract(invoice(2), by="ann")).default is not None
    assert (await engine.effective("invoice")).envelope == 2


async def test_an_unknown_version_is_told_from_an_unknown_contract(engine: Engine) -> None:
    await engine.publish_contract(invoice(), by="ann")
    assert (await refusal(engine.contract("invoice", 7))).code == "VERSION_UNKNOWN"
    assert isinstance(await refusal(engine.contract("order")), NotFound)


# --- starts -----------------------------------------------------------------------------------------------------------


async def test_no_start_takes_the_graph_of_documents(engine: Engine) -> None:
    await engine.publish_contract(invoice(), by="ann")
    refused = await refusal(engine.start("document:invoice"))
    assert isinstance(refused, Refused)
    assert refused.code == "DOCUMENT_NEEDED"
    assert (await refusal(engine.start_many("document:invoice", [{}]))).code == "DOCUMENT_NEEDED"
    assert (await refusal(engine.start("document:invoice", version=1))).code == "DOCUMENT_NEEDED"


async def test_nor_does_it_once_something_else_has_read_it(engine: Engine) -> None:
    await engine.publish_contract(invoice(), by="ann")
    await engine.catalog.find(engine._opened(), engine.org, "document:invoice", None)  # pyright: ignore[reportPrivateUsage]
    assert (await refusal(engine.start("document:invoice"))).code == "DOCUMENT_NEEDED"


async def test_an_envelope_alone_is_no_flow(engine: Engine) -> None:
    await engine.publish_contract(invoice(approvals=1), by="ann")
    assert (await refusal(engine.start("document:invoice"))).code == "FLOW_UNKNOWN"
    assert await engine.flows() == []


async def test_a_sub_flow_of_that_name_fails(engine: Engine) -> None:
    await engine.publish_contract(invoice(), by="ann")
    await engine.publish(Flow("parent").sub_flow("child", "document:invoice").build())
    parent = await engine.start("parent")
    await engine.drain(30)
    assert "DOCUMENT_NEEDED" in str((await engine.get(parent.id)).error)


async def test_no_flow_takes_the_name_of_documents(engine: Engine) -> None:
    flow = {"name": "document:invoice", "kind": "saga", "entry": "end", "nodes": [{"id": "end", "kind": "end"}]}
    assert (await refusal(engine.publish(flow))).code == "NAME_RESERVED"
