"""After a worker was lost: queued signals one at a time, each attempt counted before anything is decided upon it.

A signal whose decision kills the process rolls its own count back with everything else, is claimed again by the next
process and takes its neighbours in the batch along, for ever. So whoever starts after a worker ended without leaving
in order begins with care. The attempt is committed first, and after the last one the signal is buried instead. What was
in the lost worker's hands lies at the head of the queue, so a limited number of signals is enough, and one that lies
deeper is nearer to the head after the next death. Nothing of this costs anything where no worker was lost.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from holdfast.runtime.mishaps import MAX_ATTEMPTS, letter
from holdfast.store.locks import QueuedSignal, claim_one, lock
from holdfast.store.session import COMMIT, Session
from holdfast.store.statements import SQL

if TYPE_CHECKING:
    from holdfast.runtime.committer import Committer

log = logging.getLogger("holdfast.commit")

SIGNALS: Final = 1_000  # about twice what the lanes of a worker hold


class Caution:
    def __init__(self, committer: Committer) -> None:
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
        log.error("Signal %s of %s is a dead letter: %s", signal.id.hex(), signal.instance.hex(), told)
        row = letter(signal.instance, signal.id, "ATTEMPTS_EXHAUSTED", told, tried=0)
        await session.run([SQL.bury_signals.rows([row], self._committer.worker), COMMIT])
