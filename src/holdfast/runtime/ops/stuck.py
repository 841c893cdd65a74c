"""Stuck instances: unfinished, old, and with nothing queued that could move them. Found, and set in motion again.

No state of the engine's own making leads here. Rows that were lost or edited do, and signals that were discarded as
dead letters. A wait that only a person or an outside event can end is no reason to be listed.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from holdfast.core.model.ids import timer_id
from holdfast.core.model.program import Program
from holdfast.core.model.state import Token, Wait
from holdfast.core.model.status import TERMINAL
from holdfast.core.model.timestamps import to_datetime
from holdfast.errors import Conflict, Refused
from holdfast.runtime.ops.rebuild import str_id, unknown
from holdfast.store.admin import repair
from holdfast.store.admin.connection import WORKER, Desk, Errand
from holdfast.store.admin.repair import Missing, Stored, Stuck
from holdfast.store.reads.steps import check_page


class Reenqueued(msgspec.Struct, frozen=True):
    """Pieces set in motion, and pieces that a re-enqueue cannot help."""

    id: str
    moved: list[Missing]
    left: list[Missing]


async def list_stuck(dsn: str, org: str | None, older_than: timedelta, after: bytes | None, limit: int) -> list[Stuck]:
    check_page(limit, "instances")
    if older_than < timedelta(0):
        raise Refused(
            "Nothing is younger than now.",
            code="AGE_INVALID",
            hint="Give a positive time, such as timedelta(minutes=10).",
        )
    return await asyncio.to_thread(_list, dsn, org, older_than.total_seconds(), after, limit)


def _list(dsn: str, org: str | None, older: float, after: bytes | None, limit: int) -> list[Stuck]:
    with Desk(dsn) as desk, desk.transaction(WORKER) as errand:
        return repair.list_stuck(errand, org, older, after, limit)


async def reenqueue(dsn: str, org: str, program: Program, id: bytes, by: str, reason: str | None) -> Reenqueued:
    return await asyncio.to_thread(_reenqueue, dsn, org, program, id, by, reason)


def _reenqueue(dsn: str, org: str, program: Program, id: bytes, by: str, reason: str | None) -> Reenqueued:
    with Desk(dsn) as desk, desk.transaction(WORKER) as errand:
        stored = repair.lock_instance(errand, org, id)
        if stored is None:
            raise unknown(id)
        if stored.status in TERMINAL:
            raise Conflict(f"The instance is over: {stored.status}.", code="INSTANCE_OVER", hint="Start a new one.")
        if stored.state is None:
            raise Conflict(
                f"Its snapshot cannot be read: {stored.problem}", code="SNAPSHOT_UNREADABLE", hint="Rebuild it first."
            )
        moved, left = list[Missing](), list[Missing]()
        for missing in repair.find_missing(errand, id):
            (moved if _Mover(errand, stored, program).move(missing) else left).append(missing)
        if moved:
            version = repair.raise_version(errand, stored) if stored.version else 0
            about = {"by": by, "reason": reason, "moved": msgspec.to_builtins(moved)}
            repair.note(errand, stored, version, "instance_reenqueued", by, about)
            repair.hint(errand)
        return Reenqueued(str_id(id), moved, left)


class _Mover:
    """Repair of one instance: it gets its missing pieces back."""

    def __init__(self, errand: Errand, stored: Stored, program: Program) -> None:
        assert stored.state is not None
        self._errand = errand
        self._stored = stored
        self._state = stored.state
        self._program = program

    def move(self, missing: Missing) -> bool:
        """False: that would take more than a row in a queue."""
        path = missing.path or ""
        match missing.missing:
            case "start":
                return repair.start_again(self._errand, self._stored)
            case "work":
                return self._dispatch(path, self._state.tokens[path])
            case "timer":
                return self._set_timer(path, missing.wait or "")
            case "child":
                return missing.ref is not None and repair.tell_parent(self._errand, self._stored, missing.ref)
            case _:
                return False

    def _dispatch(self, path: str, token: Token) -> bool:
        place = self._program.places[token.node]
        return repair.dispatch(  # ripe at once: it has waited long enough
            self._errand, self._stored.identity.id, to_datetime(token.at), token.step, place.queue, place.node.timeout,
            token.fence, self._stored.now,
        )  # fmt: skip

    def _set_timer(self, path: str, wait_id: str) -> bool:
        wait = self._wait(path, wait_id)
        if wait is None or wait.due is None:
            return False
        whom, now = self._stored.identity, self._stored.now
        timer = wait.ref or timer_id(whom.id, wait.id)
        return repair.set_timer(self._errand, whom, timer, wait.kind, wait.id, path, to_datetime(wait.due), now)

    def _wait(self, path: str, wait_id: str) -> Wait | None:
        if not path:
            return self._state.expires
        return next((wait for wait in self._state.tokens[path].waits if wait.id == wait_id), None)
