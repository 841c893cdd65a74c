"""Run an instance again from a chosen step.

One that is not over goes back to the step itself. One that is over stays over: a new instance begins at the step, with
the version and the business key of the old one, and each of the two names the other in its audit trail.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.model.rows import StepRow
from holdfast.core.model.signals import Actor
from holdfast.core.model.status import TERMINAL
from holdfast.core.replay.replay import definitions_of
from holdfast.core.signals.rerun import Past, begun_again, rerun_of
from holdfast.errors import Busy, Conflict, HoldfastError
from holdfast.runtime.commit.items import Item
from holdfast.runtime.commit.starter import new_id
from holdfast.runtime.ops.rebuild import has_beginning, str_id, unknown
from holdfast.runtime.validation import check_key, check_text
from holdfast.store.admin import repair
from holdfast.store.admin.connection import WORKER, Desk, Errand
from holdfast.store.admin.repair import Asked, Stored
from holdfast.store.commit.needs import SignalContent
from holdfast.store.pg.session import Session

if TYPE_CHECKING:
    from holdfast.runtime.engine.core import Base


class Wish(msgspec.Struct, frozen=True):
    """A wanted re-run: the step, and its options."""

    step: str
    token: str | None
    input: bytes | None
    by: str
    reason: str | None
    business_key: str | None  # of the instance, and of the new one
    if_version: int | None = None  # only as long as the instance is there
    key: str | None = None  # the same wish with the same key is granted once

    @property
    def asked(self) -> Asked | None:
        if self.key is None:
            return None
        payload = b'{"input":%b,"token":%b}' % (self.input or b"null", msgspec.json.encode(self.token))
        return Asked(self.key, self.step, payload)

    def check_version(self, stored: Stored) -> None:
        if self.if_version not in (None, stored.version):
            raise Conflict(
                f"The instance is at version {stored.version}, not {self.if_version}.",
                code="VERSION_CONFLICT",
                hint="Read it again and decide on what you see then.",
            )


async def rerun(engine: Base, session: Session, id: bytes, wish: Wish) -> bytes:
    """The id of the instance that runs: the same one, or the new one."""
    for text, what in ((wish.step, "step"), (wish.token, "token"), (wish.by, "actor"), (wish.reason, "reason")):
        check_text(text, what)
    check_key(wish.key, "idempotency key")
    busy = Busy("The instance changes faster than it can be read; try again.", code="INSTANCE_BUSY")
    return await engine.races.settle((engine.org, id), lambda: _try_to_rerun(engine, session, id, wish), busy)


async def _try_to_rerun(engine: Base, session: Session, id: bytes, wish: Wish) -> bytes | None:
    """None: the instance moved on while we looked."""
    stored, rows, granted = await asyncio.to_thread(_read, engine.dsn, engine.org, id, wish)
    if granted is not None:
        return granted
    wish.check_version(stored)
    past = await _past(engine, session, stored, rows)
    if stored.status in TERMINAL:
        return await asyncio.to_thread(_begin_again, engine.dsn, engine.org, past, wish, engine.options.max_context)
    try:
        await _go_back(engine, stored, past, wish)
    except HoldfastError as refusal:
        if refusal.code != "VERSION_CONFLICT" and not isinstance(refusal, Busy):
            raise
        return None
    return id


async def _go_back(engine: Base, stored: Stored, past: Past, wish: Wish) -> None:
    if stored.state is None:
        raise Conflict(
            f"The snapshot cannot be read: {stored.problem}",
            code="SNAPSHOT_UNREADABLE",
            hint="Rebuild it from the instance's steps.",
        )
    signal = rerun_of(past, stored.state, stored.version, wish.step, wish.token, wish.input, wish.reason)
    id, asked = past.identity.id, wish.asked
    item = Item(id, signal, Actor(wish.by))
    if asked is not None:
        item.receipt = asked.receipt
        item.content = SignalContent(id, asked.receipt, "rerun", asked.payload, asked.step)
    await engine.committer.apply(item)


def _read(dsn: str, org: str, id: bytes, wish: Wish) -> tuple[Stored, list[StepRow], bytes | None]:
    """The instance, its rows, and which instance the wish has set in motion before."""
    with Desk(dsn) as desk, desk.transaction(WORKER) as errand:
        stored = repair.lock_instance(errand, org, id)
        if stored is None:
            raise unknown(id)
        return stored, repair.read_rows(errand, stored), _granted(errand, id, wish)


def _granted(errand: Errand, id: bytes, wish: Wish) -> bytes | None:
    asked = wish.asked
    before = None if asked is None else repair.find_rerun(errand, id, asked)
    if before is None:
        return None
    if not before.is_same:
        raise Conflict(
            f"The key {wish.key!r} was already used for another re-run of this instance.",
            code="IDEMPOTENCY_KEY_REUSED",
            hint="Use a new key for a new re-run.",
        )
    return before.began or id


async def _past(engine: Base, session: Session, stored: Stored, rows: list[StepRow]) -> Past:
    if not has_beginning(stored, rows):
        if not stored.version:
            raise Conflict(
                "The instance has not been started yet.", code="INSTANCE_PENDING", hint="Try again in a moment."
            )
        raise Conflict(
            "The first steps of the instance are gone, so what its steps got is not known any more.",
            code="RERUN_HISTORY_GONE",
            hint="Retention has dropped their month; start a new instance.",
        )
    identity = stored.identity
    program = await engine.catalog.program(session, identity.definition)
    earlier = {id: await engine.catalog.program(session, id) for id in definitions_of(rows)}
    return Past(program, rows, identity, earlier)


def _begin_again(dsn: str, org: str, past: Past, wish: Wish, most: int) -> bytes:
    old = past.identity
    with Desk(dsn) as desk, desk.transaction(WORKER) as errand:
        stored = repair.lock_instance(errand, org, old.id)
        if stored is None:
            raise unknown(old.id)
        granted = _granted(errand, old.id, wish)  # another request with the same key may have been faster
        if granted is not None:
            return granted
        wish.check_version(stored)
        input = begun_again(past, stored.data, wish.step, wish.token, wish.input, most)
        new = new_id(org, None, wish.business_key)
        repair.begin_again(errand, stored, new, input, wish.by, {"node": wish.step, "origin": str_id(old.id)})
        about = {"step": wish.step, "instance": str_id(new), "reason": wish.reason, "new_input": wish.input is not None}
        if (asked := wish.asked) is not None:
            about["key"] = asked.key
            repair.keep_rerun(errand, stored, asked)
        repair.note(errand, stored, stored.version, "instance_run_again", wish.by, about)
        repair.hint(errand)
    return new
