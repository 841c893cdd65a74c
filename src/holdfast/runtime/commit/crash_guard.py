"""Care after a lost worker: queued signals one at a time, each attempt counted before the decision upon it.

A signal whose decision kills the process rolls its own count back with everything else, is claimed again by the next
process and takes its neighbours in the batch along, for ever. So a worker that starts after an unclean death begins
with care. It commits the attempt first, and after the last one it buries the signal instead. The lost worker's signals
are at the head of the queue, so a limited number of careful ones is enough; one that lies deeper is nearer to the head
after the next death. A worker that starts after an orderly exit pays nothing.
"""

from __future__ import annotations

from typing import Final, Protocol

from holdfast.logs import logger
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.failures import MAX_ATTEMPTS, letter
from holdfast.runtime.commit.items import Item
from holdfast.runtime.telemetry.incidents import Incidents
from holdfast.store.commit.locks import Locked, QueuedSignal, claim_one, lock
from holdfast.store.pg.session import COMMIT, Session, rows
from holdfast.store.pg.statements import SQL

log = logger("holdfast.commit")

SIGNALS: Final = 1_000  # about twice what the lanes of a worker hold


class Lanes(Protocol):
    """The committer as its guard sees it: a commit in three parts, with the first signal already locked."""

    worker: bytes | None
    incidents: Incidents
    signals_ready: bool

    def hold(self, locked: Locked, ids: set[bytes]) -> None: ...
    async def write(self, session: Session, locked: Locked, items: list[Item]) -> Plan: ...
    async def conclude(self, session: Session, items: list[Item], plan: Plan) -> None: ...


class Caution:
    def __init__(self, committer: Lanes) -> None:
        self._committer = committer
        self._begun: set[bytes] = set()  # signals this process began: while it lives, another try proves nothing new
        self.left = 0  # how many signals are still to be taken with care

    def begin(self) -> None:
        log.warning("A worker ended without leaving in order; the first signals are taken one at a time")
        self.left = SIGNALS

    async def take_one(self, session: Session, ids: set[bytes]) -> None:
        signal = await claim_one(session)
        if signal is None:
            await session.run([COMMIT])
            self._committer.signals_ready, self.left = False, 0
            return
        self.left -= 1
        if signal.id not in self._begun and signal.attempts >= MAX_ATTEMPTS:
            await self._bury(session, signal)
            return
        await self._decide(session, signal, ids)

    async def _decide(self, session: Session, signal: QueuedSignal, ids: set[bytes]) -> None:
        """One flush ends the first transaction and locks again, so that hardly anybody else comes in between."""
        attempt = SQL.begin_attempts.rows([(signal.instance, signal.instance[15], signal.id)])
        first = [COMMIT] if signal.id in self._begun else [attempt, COMMIT]
        self._begun.add(signal.id)
        locked = await lock(session, [], 1, signals=1, first=first)
        locked.signals = [found for found in locked.signals if found.id == signal.id]
        self._committer.hold(locked, ids)
        plan = await self._committer.write(session, locked, [])
        await self._committer.conclude(session, [], plan)

    async def _bury(self, session: Session, signal: QueuedSignal) -> None:
        told = f"It was begun {signal.attempts} times, and the last worker that did was lost over it."
        row = letter(signal.instance, signal.id, "ATTEMPTS_EXHAUSTED", told, tried=0)
        buried, _ = await session.run([SQL.bury_signals.rows([row], self._committer.worker), COMMIT])
        self._committer.incidents.signals_buried(signal.instance, rows(buried), f"ATTEMPTS_EXHAUSTED: {told}")
