"""The door of contracts. A patch comes in by no door: without its contract it is no graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from holdfast.doors.envelope.builder.contract import Contract
from holdfast.doors.envelope.builder.patch import Patch
from holdfast.doors.envelope.lowering import graph_name, lower_contract
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.printing import contract_code, contract_yaml
from holdfast.doors.envelope.reading.load import require_contract, require_patch
from holdfast.doors.envelope.written import contract_data, patch_data
from holdfast.doors.source import Document, Door, Source
from holdfast.errors import DefinitionError
from holdfast.graph.model import Graph

MEDIA: Final = "application/yaml"


class ContractSource(Source):
    def __init__(self, written: ContractDefinition | Mapping[str, Any]) -> None:
        self._written = written

    @cached_property
    def contract(self) -> ContractDefinition:
        written = self._written
        return written if isinstance(written, ContractDefinition) else require_contract(written["contract"])

    @property
    def name(self) -> str:
        return graph_name(self.contract.type)

    @property
    def version(self) -> int:
        return self.contract.version

    @property
    def stored(self) -> dict[str, Any]:
        written = self._written
        return store_contract(written) if isinstance(written, ContractDefinition) else dict(written)

    def lower(self) -> Graph:
        """Make the envelope."""
        return lower_contract(self.contract)

    def code(self) -> str:
        return contract_code(self.contract)

    def document(self) -> Document:
        """Pack the contract for a server, as YAML."""
        return Document(contract_yaml(self.contract).encode(), MEDIA, self.contract.type)


def store_contract(contract: ContractDefinition) -> dict[str, Any]:
    """Make the JSON that is stored beside an envelope."""
    return {"kind": "envelope", "contract": contract_data(contract)}


def store_patch(patch: PatchDefinition) -> dict[str, Any]:
    """Make the JSON that is stored of a patch."""
    return {"kind": "org_patch", "patch": patch_data(patch)}


def open_patch(stored: Mapping[str, Any]) -> PatchDefinition:
    """Read a stored patch back."""
    return require_patch(stored["patch"])


def _take(written: object) -> Source | None:
    if isinstance(written, Contract | Patch):
        raise DefinitionError(
            f"The {type(written).__name__.lower()} was written and not built.",
            code="FLOW_NOT_BUILT",
            hint="Write `.build()` behind its last verb.",
        )
    return ContractSource(written) if isinstance(written, ContractDefinition) else None


def _open(stored: Mapping[str, Any]) -> Source | None:
    return ContractSource(stored) if stored.get("kind") == "envelope" and "contract" in stored else None


def _load(found: object) -> Source | None:
    return _take(found.build() if isinstance(found, Contract) else found)


DOOR: Final = Door(take=_take, open=_open, load=_load)
