"""Rebase: bring the patches in force to another version of their contract, and tell which of them do not fit it."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from holdfast.doors.envelope.effective import check_effective
from holdfast.doors.envelope.findings import Finding
from holdfast.doors.envelope.lowering import graph_name
from holdfast.errors import HoldfastError
from holdfast.runtime.envelopes import patches
from holdfast.runtime.envelopes.contracts import read_document
from holdfast.store.contracts import list_patched_orgs, read_numbers
from holdfast.store.pg.session import Session


class Rebased(msgspec.Struct, frozen=True):
    """The outcome of a rebase for the patch of one organisation."""

    org: str
    type: str
    version: int  # of the patch
    envelope: int  # the version of the contract it was made for
    status: Literal["fits", "misfit", "current", "published", "failed"]
    published: int | None = None  # the new version of the patch
    findings: tuple[Finding, ...] = ()  # what is wrong with it in the other version, each with its place
    error: str | None = None


async def rebase(
    session: Session, org: str, type: str, to_version: int | None, by: str, reason: str | None, *, dry_run: bool
) -> list[Rebased]:
    """Rebase the patch in force of one organisation; none if it has none."""
    target = await read_document(session, org, type, to_version)
    if (await read_numbers(session, org, graph_name(type))).in_force is None:
        return []
    found = await patches.read(session, org, type, None)
    told = Rebased(org, type, found.version, found.envelope, "current")
    if found.envelope >= target.version:
        return [told]
    moved = msgspec.structs.replace(found.patch, envelope=target.version)
    findings = await asyncio.to_thread(check_effective, target.contract, moved)
    if any(finding.severity == "error" for finding in findings):
        return [msgspec.structs.replace(told, status="misfit", findings=findings)]
    if dry_run:
        return [msgspec.structs.replace(told, status="fits", findings=findings)]
    new = await patches.publish_again(session, org, moved, "patch_rebased", by, reason, found.version)
    return [msgspec.structs.replace(told, status="published", published=new.version, findings=findings)]


async def rebase_all(
    session: Session, type: str, to_version: int | None, by: str, reason: str | None, *, dry_run: bool
) -> list[Rebased]:
    """Rebase the patches of all organisations, each on its own: what stops one does not stop the others."""
    done: list[Rebased] = []
    for org in await list_patched_orgs(session, graph_name(type)):
        try:
            done += await rebase(session, org, type, to_version, by, reason, dry_run=dry_run)
        except HoldfastError as error:
            done.append(Rebased(org, type, 0, 0, "failed", error=f"[{error.code}] {error.message}"))
    return done
