"""Drafts: an organisation's next patch of a type, before it is published. There is one of each type."""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import uuid4

import msgspec

from holdfast.doors.envelope.model import PatchDefinition
from holdfast.doors.envelope.reading.load import require_patch
from holdfast.doors.envelope.written import patch_data
from holdfast.errors import Conflict, NotFound
from holdfast.payloads import canonical
from holdfast.runtime.envelopes.graphs import event_of
from holdfast.store.contract_changes import delete_draft, save_draft
from holdfast.store.contracts import StoredDraft, read_draft
from holdfast.store.pg.session import Session


class Draft(msgspec.Struct, frozen=True):
    """A patch that is not published yet, and who saved it when."""

    type: str
    etag: str  # another one after each save
    patch: PatchDefinition
    by: str
    at: datetime
    reason: str | None = None


async def save(
    session: Session, org: str, patch: PatchDefinition, by: str, reason: str | None, etag: str | None
) -> Draft:
    """Save a draft over the one that has this tag; without a tag over any."""
    patch = await asyncio.to_thread(readable, patch)
    event = event_of(org, patch.contract, "draft_saved", by, reason)
    content, new = canonical(patch_data(patch)), uuid4().hex
    if not await save_draft(session, org, patch.contract, new, content, by=by, reason=reason, tag=etag, event=event):
        raise changed(patch.contract)
    return await read(session, org, patch.contract)


async def read(session: Session, org: str, type: str) -> Draft:
    found = await read_draft(session, org, type)
    if found is None:
        raise NotFound(
            f"There is no draft of a patch for {type!r}.",
            code="DRAFT_UNKNOWN",
            hint="Save one; a draft that was published or dropped is gone.",
        )
    return await asyncio.to_thread(_draft, found)


async def drop(session: Session, org: str, type: str, by: str, reason: str | None, etag: str | None) -> None:
    tag = (await read(session, org, type)).etag if etag is None else etag
    if not await delete_draft(session, org, type, tag, event_of(org, type, "draft_dropped", by, reason)):
        raise changed(type)


def readable(patch: PatchDefinition) -> PatchDefinition:
    """Check a patch by itself: it may have been made without its builder. Its number is dropped."""
    return require_patch(patch_data(msgspec.structs.replace(patch, version=1)))


def changed(type: str) -> Conflict:
    return Conflict(
        f"The draft for {type!r} is not the one you have seen: somebody saved, published or dropped it meanwhile.",
        code="DRAFT_CHANGED",
        hint="Read it again, and decide again.",
    )


def _draft(found: StoredDraft) -> Draft:
    return Draft(found.type, found.tag, require_patch(found.patch), found.saved_by, found.saved_at, found.reason)
