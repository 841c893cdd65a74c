"""Contracts of a server: publish them, fill their slots with patches, move patches to another version."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.client.connection import EVERYTHING, Connection, given, part, taken
from holdfast.doors.envelope.findings import Finding
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.reading.load import require_contract, require_patch
from holdfast.doors.envelope.written import contract_data, patch_data
from holdfast.graph.compile import assemble
from holdfast.graph.difference.model import Difference
from holdfast.graph.model import load_graph
from holdfast.runtime.envelopes.contracts import ContractDocument, PublishedContract
from holdfast.runtime.envelopes.drafts import Draft
from holdfast.runtime.envelopes.patches import EffectiveDocument, PatchDocument, PublishedPatch
from holdfast.runtime.envelopes.rebase import Rebased
from holdfast.runtime.envelopes.script import Input
from holdfast.runtime.envelopes.sides import After, Before
from holdfast.runtime.envelopes.simulated import Simulation
from holdfast.store.contracts import ContractEvent, ContractVersion, PatchVersion

Written = Mapping[str, Any]


class ClientContracts:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def publish(
        self, contract: ContractDefinition | Written, *, by: str | None = None, reason: str | None = None
    ) -> PublishedContract:
        """Publish a contract; the key needs the scope `publish`."""
        data = contract_data(contract) if isinstance(contract, ContractDefinition) else {**contract}
        return taken(PublishedContract, self._server.act("/contracts", given(contract=data, reason=reason), by))

    def list(self, *, limit: int = EVERYTHING) -> builtins.list[ContractVersion]:
        """List contracts by type, each in its newest version."""
        return [taken(ContractVersion, item) for item in self._server.pages("/contracts", limit)]

    def versions(self, type: str, *, limit: int = EVERYTHING) -> builtins.list[ContractVersion]:
        """List the versions of a contract, newest first."""
        return [taken(ContractVersion, item) for item in self._server.pages(f"{_path(type)}/versions", limit)]

    def get(self, type: str, version: int | None = None) -> ContractDocument:
        """Read one version of a contract, by default the newest."""
        told = self._server.get(_path(type) if version is None else f"{_path(type)}/versions/{version}")
        contract = require_contract(told["contract"])
        return taken(ContractDocument, {**told, "contract": msgspec.to_builtins(contract)})

    def effective(self, type: str, version: int | None = None) -> EffectiveDocument:
        """Read the graph that documents of a type run by."""
        told = self._server.get(f"{_path(type)}/graph", version=version)
        facts = {key: value for key, value in told.items() if key != "graph"}
        return EffectiveDocument(**facts, graph=assemble(load_graph(told["graph"])))

    def drawing(self, type: str, version: int | None = None) -> str:
        """Draw the graph that documents of a type run by, as Mermaid text."""
        return self._server.text(f"{_path(type)}/mermaid", version=version)

    def difference(self, type: str, before: Before, after: After) -> Difference:
        """Compare two graphs of a type: from the contract alone or a version of the patch to a version or the draft."""
        query = {"from": before, "to": after}
        return taken(Difference, self._server.send("GET", f"{_path(type)}/diff", query=query))

    def difference_page(self, type: str, before: Before, after: After) -> str:
        """Compare two graphs of a type, as a page of HTML with a drawing of each side."""
        query: dict[str, Any] = {"from": before, "to": after}
        return self._server.text(f"{_path(type)}/diff", headers={"Accept": "text/html"}, **query)

    def simulate(
        self,
        type: str,
        document: Mapping[str, Any],
        script: Iterable[Input] = (),
        *,
        version: After | None = None,
        now: datetime | None = None,
        settings: Mapping[str, Any] | None = None,
        outputs: Mapping[str, dict[str, Any]] | None = None,
        failing: Mapping[str, str] | None = None,
    ) -> Simulation:
        """Send a document that exists only in the answer through the graph in force, a patch's or the draft's."""
        wish = given(version=version, now=now, settings=settings, outputs=outputs, failing=failing)
        wish |= {"document": document, "script": [*script]}
        return taken(Simulation, self._server.post(f"{_path(type)}/simulate", wish))

    def events(self, type: str, *, limit: int = 50) -> builtins.list[ContractEvent]:
        """List what was done with contract, draft and patch of a type, the last first."""
        return [taken(ContractEvent, item) for item in self._server.pages(f"{_path(type)}/events", limit)]

    # --- the draft ---------------------------------------------------------------------------------------------------

    def save_draft(
        self,
        patch: PatchDefinition | Written,
        *,
        by: str | None = None,
        reason: str | None = None,
        etag: str | None = None,
    ) -> Draft:
        """Save the draft of a patch; with `etag` only over the draft that has it."""
        data = _data(patch)
        headers = {**self._server.person(by), **_match(etag)}
        body = given(patch=data, reason=reason)
        return _draft(self._server.send("PUT", f"{_path(data['contract'])}/draft", body=body, headers=headers))

    def draft(self, type: str) -> Draft:
        """Read the draft for a type."""
        return _draft(self._server.get(f"{_path(type)}/draft"))

    def drop_draft(self, type: str, *, by: str | None = None, etag: str | None = None) -> None:
        """Drop the draft for a type."""
        headers = {**self._server.person(by), **_match(etag)}
        self._server.send("DELETE", f"{_path(type)}/draft", headers=headers)

    def check(self, patch: PatchDefinition | Written | str) -> tuple[Finding, ...]:
        """Find everything that is wrong with a patch, or with the draft for a type; nothing is stored."""
        data = None if isinstance(patch, str) else _data(patch)
        type = patch if isinstance(patch, str) else (data or {})["contract"]
        told = self._server.post(f"{_path(type)}/draft/check", given(patch=data))
        return taken(tuple[Finding, ...], told["findings"])

    def publish_patch(
        self, type: str, *, by: str | None = None, reason: str | None = None, etag: str | None = None
    ) -> PublishedPatch:
        """Compile the draft for a type and put it in force."""
        done = self._server.act(f"{_path(type)}/draft/publish", given(reason=reason), by, **_match(etag))
        return taken(PublishedPatch, done)

    # --- patches -----------------------------------------------------------------------------------------------------

    def patches(self, type: str, *, limit: int = EVERYTHING) -> builtins.list[PatchVersion]:
        """List the tenant's patches, newest first."""
        return [taken(PatchVersion, item) for item in self._server.pages(f"{_path(type)}/patches", limit)]

    def patch(self, type: str, version: int) -> PatchDocument:
        """Read one version of the patch, as it was written."""
        told = self._server.get(f"{_path(type)}/patches/{version}")
        return taken(PatchDocument, {**told, "patch": msgspec.to_builtins(require_patch(told["patch"]))})

    def restore(self, type: str, version: int, *, by: str | None = None, reason: str | None = None) -> PublishedPatch:
        """Publish an old version of the patch again, as a new one."""
        done = self._server.act(f"{_path(type)}/patches/{version}/restore", given(reason=reason), by)
        return taken(PublishedPatch, done)

    def archive(self, type: str, version: int, *, by: str | None = None, reason: str | None = None) -> None:
        """Take a version of the patch out of force."""
        self._server.act(f"{_path(type)}/patches/{version}/archive", given(reason=reason), by)

    def rebase(
        self,
        type: str,
        to_version: int | None = None,
        *,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> builtins.list[Rebased]:
        """Bring the tenant's patch to a version of the contract, by default the newest."""
        wish = given(to_version=to_version, reason=reason, dry_run=dry_run)
        return taken(builtins.list[Rebased], self._server.act(f"{_path(type)}/rebase", wish, by)["patches"])


def _path(type: str) -> str:
    return f"/contracts/{part(type)}"


def _match(etag: str | None) -> dict[str, str]:
    return {} if etag is None else {"If-Match": f'"{etag}"'}


def _data(patch: PatchDefinition | Written) -> dict[str, Any]:
    return patch_data(patch if isinstance(patch, PatchDefinition) else require_patch(patch))


def _draft(told: dict[str, Any]) -> Draft:
    return taken(Draft, {**told, "patch": msgspec.to_builtins(require_patch(told["patch"]))})
