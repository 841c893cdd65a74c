"""Contracts of documents: publish them, fill their slots, move patches to another version."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.doors.envelope.decision_tables.model import TableDefinition
from holdfast.doors.envelope.findings import Finding
from holdfast.doors.envelope.lowering import graph_name
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition
from holdfast.doors.envelope.reading.load import require_contract, require_patch, require_table
from holdfast.errors import Refused
from holdfast.graph.difference.model import Difference
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.envelopes import contracts, drafts, patches, rebase, tables
from holdfast.runtime.envelopes.contracts import ContractDocument, PublishedContract
from holdfast.runtime.envelopes.drafts import Draft
from holdfast.runtime.envelopes.patches import EffectiveDocument, PatchDocument, PublishedPatch
from holdfast.runtime.envelopes.rebase import Rebased
from holdfast.runtime.envelopes.script import Input
from holdfast.runtime.envelopes.sides import (
    DRAFT,
    ENVELOPE,
    After,
    Before,
    Sides,
    check_side,
    read_graph,
    read_sides,
)
from holdfast.runtime.envelopes.simulated import Simulation
from holdfast.runtime.envelopes.simulation import simulate
from holdfast.runtime.envelopes.tables import PublishedTable, TableDocument
from holdfast.runtime.validation import check_flag, check_moment, check_text, check_version
from holdfast.store.contracts import (
    LAST,
    NEWEST,
    ContractEvent,
    ContractVersion,
    PatchVersion,
    page_contract_events,
    page_contract_versions,
    page_contracts,
    page_patches,
)
from holdfast.store.decision_tables import TableVersion, page_tables
from holdfast.store.reads.steps import check_page


class Contracting(Reading):
    async def publish_contract(
        self, contract: ContractDefinition | Mapping[str, Any], *, by: str, reason: str | None = None
    ) -> PublishedContract:
        """Publish a contract for this organisation, or as `_system` for all of them.

        The same content again changes nothing. Documents without a patch run by the contract's own graph, which is
        published with it; a contract that demands approvals has none, and the answer's `note` says so.
        """
        _check_act(by, reason)
        definition = contract if isinstance(contract, ContractDefinition) else require_contract(contract)
        done = await contracts.publish_contract(self._opened(), self.org, definition, by, reason)
        self.catalog.forget(graph_name(done.type))
        return done

    async def contracts(self, *, after: str | None = None, limit: int = 50) -> list[ContractVersion]:
        """A page of the newest version of each contract, by type; `after` is the type at the end of the page before."""
        check_text(after, "type of documents")
        return await page_contracts(self._opened(), self.org, after or "", check_page(limit, "contracts"))

    async def contract_versions(
        self, type: str, *, before: int | None = None, limit: int = 50
    ) -> list[ContractVersion]:
        """A page of the versions of one contract, newest first; `before` is the last version of the page before."""
        check_text(type, "type of documents")
        check_version(before, "version of the contract")
        limit = check_page(limit, "contracts")
        return await page_contract_versions(self._opened(), self.org, graph_name(type), before or NEWEST, limit)

    async def contract(self, type: str, version: int | None = None) -> ContractDocument:
        """Read one version of a contract, by default the newest."""
        check_text(type, "type of documents")
        check_version(version, "version of the contract")
        return await contracts.read_document(self._opened(), self.org, type, version)

    async def effective(self, type: str, version: int | None = None) -> EffectiveDocument:
        """Read a graph that documents of a type run by: by default the one in force, else that of a patch's version."""
        check_text(type, "type of documents")
        check_version(version, "version of the patch")
        return await patches.effective(self._opened(), self.org, type, version)

    async def contract_difference(self, type: str, before: Before, after: After) -> Difference:
        """Compare two graphs of a type: from the contract alone or a version of the patch to a version or the draft."""
        sides = await self._sides(type, before, after)
        return await asyncio.to_thread(sides.difference)

    async def contract_difference_page(self, type: str, before: Before, after: After) -> str:
        """Compare two graphs of a type, as a page of HTML with a drawing of each side."""
        sides = await self._sides(type, before, after)
        return await asyncio.to_thread(sides.page)

    async def _sides(self, type: str, before: Before, after: After) -> Sides:
        check_text(type, "type of documents")
        check_side(before, "version of the patch before", ENVELOPE)
        check_side(after, "version of the patch after", DRAFT)
        return await read_sides(self._opened(), self.org, type, before, after)

    async def simulate_document(
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
        """Send a document through the graph in force, that of a patch's version, or that of the draft, in memory.

        `settings` are those of the organisation. Nothing is stored, no effect is delivered.
        """
        check_text(type, "type of documents")
        check_side(version, "version of the patch", DRAFT)
        check_moment(now, "time")
        graph = await read_graph(self._opened(), self.org, type, version)
        given = [*script]
        return await asyncio.to_thread(
            simulate, graph, document, given, now=now, org=settings, outputs=outputs, failing=failing
        )

    # --- decision tables ---------------------------------------------------------------------------------------------

    async def publish_table(
        self, table: TableDefinition | Mapping[str, Any], *, by: str, reason: str | None = None
    ) -> PublishedTable:
        """Publish a decision table for this organisation, or as `_system` for all of them.

        The same content again changes nothing. Graphs that were published keep the version they have taken.
        """
        _check_act(by, reason)
        definition = table if isinstance(table, TableDefinition) else await asyncio.to_thread(require_table, table)
        return await tables.publish_table(self._opened(), self.org, definition, by, reason)

    async def tables(self, *, after: str | None = None, limit: int = 50) -> list[TableVersion]:
        """A page of the newest version of each decision table, by name; `after` is the last name of the page before."""
        check_text(after, "name of the table")
        return await page_tables(self._opened(), self.org, after or "", check_page(limit, "decision tables"))

    async def table(self, name: str, version: int | None = None) -> TableDocument:
        """Read one version of a decision table, by default the newest."""
        check_text(name, "name of the table")
        check_version(version, "version of the table")
        return await tables.read_table(self._opened(), self.org, name, version)

    # --- drafts ------------------------------------------------------------------------------------------------------

    async def save_patch_draft(
        self,
        patch: PatchDefinition | Mapping[str, Any],
        *,
        by: str,
        reason: str | None = None,
        etag: str | None = None,
    ) -> Draft:
        """Save the draft of a patch; there is one per type. With `etag` only over the draft that has it."""
        _check_act(by, reason)
        check_text(etag, "tag of the draft")
        return await drafts.save(self._opened(), self.org, _patch(patch), by, reason, etag)

    async def patch_draft(self, type: str) -> Draft:
        """Read the draft for a type."""
        check_text(type, "type of documents")
        return await drafts.read(self._opened(), self.org, type)

    async def drop_patch_draft(self, type: str, *, by: str, reason: str | None = None, etag: str | None = None) -> None:
        """Drop the draft for a type, unless it is not the one with this tag any more."""
        _check_act(by, reason)
        check_text(type, "type of documents")
        check_text(etag, "tag of the draft")
        await drafts.drop(self._opened(), self.org, type, by, reason, etag)

    async def check_patch(self, patch: PatchDefinition | Mapping[str, Any] | str) -> tuple[Finding, ...]:
        """Find everything that is wrong with a patch, or with the draft for a type; nothing is stored."""
        if isinstance(patch, str):
            patch = (await self.patch_draft(patch)).patch
        return await patches.check(self._opened(), self.org, await asyncio.to_thread(_patch, patch))

    # --- patches -----------------------------------------------------------------------------------------------------

    async def publish_patch(
        self, type: str, *, by: str, reason: str | None = None, etag: str | None = None
    ) -> PublishedPatch:
        """Compile the draft for a type and put it in force; the draft is gone then.

        A draft that was saved, published or dropped by somebody else meanwhile is a conflict.
        """
        _check_act(by, reason)
        check_text(type, "type of documents")
        check_text(etag, "tag of the draft")
        done = await patches.publish_draft(self._opened(), self.org, type, by, reason, etag)
        self.catalog.forget(graph_name(type))
        return done

    async def patches(self, type: str, *, before: int | None = None, limit: int = 50) -> list[PatchVersion]:
        """A page of this organisation's patches, newest first; `before` is the last version of the page before."""
        check_text(type, "type of documents")
        check_version(before, "version of the patch")
        limit = check_page(limit, "patches")
        return await page_patches(self._opened(), self.org, graph_name(type), before or NEWEST, limit)

    async def patch(self, type: str, version: int | None = None) -> PatchDocument:
        """Read one published patch as it was written, by default the one in force."""
        check_text(type, "type of documents")
        check_version(version, "version of the patch")
        return await patches.read(self._opened(), self.org, type, version)

    async def restore_patch(self, type: str, version: int, *, by: str, reason: str | None = None) -> PublishedPatch:
        """Publish an old version of the patch again, as a new one."""
        _check_act(by, reason)
        check_text(type, "type of documents")
        check_version(version, "version of the patch")
        done = await patches.restore(self._opened(), self.org, type, version, by, reason)
        self.catalog.forget(graph_name(type))
        return done

    async def archive_patch(self, type: str, version: int, *, by: str, reason: str | None = None) -> None:
        """Take a version of the patch out of force: the newest one that is left, or the bare contract, follows it."""
        _check_act(by, reason)
        check_text(type, "type of documents")
        check_version(version, "version of the patch")
        await patches.archive(self._opened(), self.org, type, version, by, reason)
        self.catalog.forget(graph_name(type))

    async def rebase(
        self,
        type: str,
        to_version: int | None = None,
        *,
        by: str,
        reason: str | None = None,
        dry_run: bool = False,
        all_orgs: bool = False,
    ) -> list[Rebased]:
        """Bring the patch in force to a version of the contract, by default the newest; a misfit stays as it is.

        `all_orgs` does so for every organisation, each on its own. A dry run only tells which ones fit.
        """
        _check_act(by, reason)
        check_text(type, "type of documents")
        check_version(to_version, "version of the contract")
        check_flag(dry_run, "dry_run")
        check_flag(all_orgs, "all_orgs")
        if all_orgs:
            return await rebase.rebase_all(self._opened(), type, to_version, by, reason, dry_run=dry_run)
        return await rebase.rebase(self._opened(), self.org, type, to_version, by, reason, dry_run=dry_run)

    async def contract_events(self, type: str, *, before: int | None = None, limit: int = 50) -> list[ContractEvent]:
        """A page of what was done with contract, draft and patch of a type, by whom and why; the last first.

        `before` is the id of the last one of the page before.
        """
        check_text(type, "type of documents")
        check_version(before, "id of the event", most=LAST)
        limit = check_page(limit, "events")
        return await page_contract_events(self._opened(), self.org, type, before or LAST, limit)


def _check_act(by: str, reason: str | None) -> None:
    if not by:
        raise Refused("Nobody does this.", code="ACTOR_MISSING", hint="Name who does it: by='ann'.")
    check_text(by, "actor")
    check_text(reason, "reason")


def _patch(patch: PatchDefinition | Mapping[str, Any]) -> PatchDefinition:
    return patch if isinstance(patch, PatchDefinition) else require_patch(patch)
