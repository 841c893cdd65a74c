"""Sessions that are lent to users' functions, each in a transaction of its own; they are kept for the next one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.logs import logger
from holdfast.store.commit.calls import CallLimits, CallTransaction
from holdfast.store.pg.session import ROLLBACK, DatabaseError, Disconnected, Session

log = logger("holdfast.calls")


class LentTransactions:
    def __init__(self, dsn: str, limits: CallLimits) -> None:
        self._dsn = dsn
        self._limits = limits
        self._free: list[Session] = []

    async def close(self) -> None:
        for session in self._free:
            await session.close()
        self._free.clear()

    @asynccontextmanager
    async def lend(self) -> AsyncGenerator[CallTransaction]:
        session = self._free.pop() if self._free else await Session.open(self._dsn)
        try:
            yield CallTransaction(session, self._limits)
        finally:
            await self._give_back(session)

    async def _give_back(self, session: Session) -> None:
        """A session with an open transaction rolls it back; one that is out of step is not worth saving."""
        try:
            if not session.broken and session.is_in_transaction:
                await session.run([ROLLBACK])
        except (Disconnected, DatabaseError):
            log.warning("A session of the calls was lost")
        if session.broken:
            await session.close()
        else:
            self._free.append(session)
