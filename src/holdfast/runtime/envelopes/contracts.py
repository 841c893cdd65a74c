"""Contracts: publish them, each with the graph of documents without a patch, and read them back whole."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.doors.envelope.effective import compile_effective
from holdfast.doors.envelope.lowering import graph_name, lower_contract
from holdfast.doors.envelope.model import ContractDefinition
from holdfast.doors.envelope.reading.load import require_contract
from holdfast.doors.envelope.written import contract_data
from holdfast.errors import Conflict, DefinitionError, NotFound
from holdfast.graph.compiled import COMPILER_VERSION
from holdfast.graph.envelope import EnvelopeConfig
from holdfast.graph.model import Graph, dump_graph, dump_struct
from holdfast.payloads import canonical
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.envelopes.graphs import event_of, graph_row
from holdfast.runtime.publishing import COUNTED_TRIES, version_taken
from holdfast.store.contract_changes import NewEffective, NewEnvelope, insert_contract
from holdfast.store.contracts import ContractVersion, StoredContract, read_contract, read_numbers
from holdfast.store.pg.session import Session

UNDERAPPROVED = "GATE_UNDERAPPROVED"


class PublishedContract(msgspec.Struct, frozen=True):
    """A contract as it was published."""

    type: str
    version: int
    hash: str  # of its envelope
    new: bool  # False: the very same contract was there already
    default: int | None  # the graph of documents without a patch; None: there is none
    note: str | None = None  # why there is none


class ContractDocument(ContractVersion, frozen=True):
    """A published contract as it was written, with the envelope made of it."""

    contract: ContractDefinition

    @property
    def envelope(self) -> Graph:
        """The graph that every graph of the type contains."""
        return lower_contract(self.contract)


async def publish_contract(
    session: Session, org: str, contract: ContractDefinition, by: str, reason: str | None
) -> PublishedContract:
    """Store the envelope of a contract and the graph of documents without a patch, in one transaction."""
    contract, envelope = await asyncio.to_thread(_sound, contract)
    digest = config_of(envelope).hash
    for _ in range(COUNTED_TRIES):
        known = await _known(session, org, contract, digest)
        default, note = await _default(session, org, contract, by)
        answer = PublishedContract(
            contract.type, contract.version, digest, known is None, None if default is None else default.version, note
        )
        if known is not None and default is None:
            return answer
        row = None if known is not None else await asyncio.to_thread(_row, org, contract, envelope, by)
        event = event_of(org, contract.type, "contract_published", by, reason, version=contract.version)
        if await insert_contract(session, row, default, event):
            return answer
    raise version_taken(graph_name(contract.type), contract.version)


async def read_document(session: Session, org: str, type: str, version: int | None = None) -> ContractDocument:
    """Read a contract, proved to be the one that was published."""
    found = await read_contract(session, org, graph_name(type), version)
    if found is None:
        raise await _unknown(session, org, type, version)
    return await asyncio.to_thread(_document, found)


def config_of(envelope: Graph) -> EnvelopeConfig:
    return msgspec.convert(envelope.config, EnvelopeConfig)


async def _unknown(session: Session, org: str, type: str, version: int | None) -> NotFound:
    if version is not None and await read_contract(session, org, graph_name(type), None) is not None:
        return NotFound(
            f"The contract {type!r} has no version {version}.",
            code="VERSION_UNKNOWN",
            hint="Publish it, or leave the version out.",
        )
    return NotFound(
        f"There is no contract {type!r}.", code="CONTRACT_UNKNOWN", hint="Publish it, and check the organisation."
    )


def _document(found: StoredContract) -> ContractDocument:
    contract = require_contract(found.source)
    if config_of(lower_contract(contract)).hash != found.version.hash:
        raise DefinitionError(
            f"The contract {contract.type!r} version {contract.version} does not match its hash.",
            code="WORKFLOW_HASH_MISMATCH",
            hint="It was changed after publication, or is older than this compiler: publish it as a new version.",
        )
    return ContractDocument(**msgspec.structs.asdict(found.version), contract=contract)


def _sound(contract: ContractDefinition) -> tuple[ContractDefinition, Graph]:
    """Check a contract that may have been made without its builder."""
    checked = require_contract(contract_data(contract))
    return checked, lower_contract(checked)


async def _known(session: Session, org: str, contract: ContractDefinition, digest: str) -> StoredContract | None:
    """Find the same version, published before; refuse a contract that contradicts it, or comes after a newer one."""
    name = graph_name(contract.type)
    known = await read_contract(session, org, name, contract.version)
    if known is not None and known.version.org == org:
        if known.version.hash != digest:
            raise version_taken(name, contract.version)
        return known
    newest = await read_contract(session, org, name, None)
    if newest is not None and newest.version.org == org and newest.version.version > contract.version:
        raise Conflict(
            f"The newest contract {contract.type!r} has version {newest.version.version}; this one has"
            f" {contract.version}.",
            code="CONTRACT_OUTDATED",
            hint="Give the contract a higher version.",
        )
    return None


async def _default(
    session: Session, org: str, contract: ContractDefinition, by: str
) -> tuple[NewEffective | None, str | None]:
    """Compile the graph of documents without a patch, unless it is there, a patch is in force, or it cannot be."""
    numbers = await read_numbers(session, org, graph_name(contract.type))
    if numbers.in_force is not None:
        return None, f"Version {numbers.in_force} of the patch stays in force: rebase it to this contract."
    if numbers.default_of is not None and numbers.default_of >= contract.version:
        return None, None
    try:
        compiled = await asyncio.to_thread(compile_effective, contract, None, version=numbers.last + 1)
    except DefinitionError as error:
        if error.code != UNDERAPPROVED:
            raise
        return None, f"Documents need a patch: {error.message}"
    base = {"envelope": contract.version, "hash": config_of(lower_contract(contract)).hash, "org": org}
    return graph_row(org, compiled, base, by, is_default=True), None


def _row(org: str, contract: ContractDefinition, envelope: Graph, by: str) -> NewEnvelope:
    config, dumped = config_of(envelope), dump_graph(envelope)
    return NewEnvelope(
        id=new_id(org, None, None),
        org=org,
        name=envelope.name,
        version=contract.version,
        type=contract.type,
        source=canonical(contract_data(contract)),
        nodes=canonical(dumped["nodes"]),
        edges=canonical(dumped.get("edges", [])),
        slots=canonical(_slots(config)),
        hash=config.hash,
        compiler_version=COMPILER_VERSION,
        created_by=by,
    )


def _slots(config: EnvelopeConfig) -> list[dict[str, Any]]:
    keys = ("name", "entry", "exit", "rejected", "window", "stable")
    slots = (dump_struct(slot, "slot") for _, slot in sorted(config.slots.items()))
    return [{key: slot[key] for key in keys if key in slot} for slot in slots]
