"""A session that outlives its connection, for whatever may be sent twice: reads, and writes that know their own ids.

A commit is no such thing: whether one took effect must be read, so the committer keeps sessions of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from psycopg.pq.abc import PGresult

from holdfast.errors import StoreError
from holdfast.store.session import DatabaseError, Disconnected, Session
from holdfast.store.statements import Query

TRIES = 5
REFUSED_HINT: Final = (
    "Change the value the sentence is about; if it is about none of yours, run `holdfast doctor` and look into the log"
    " of the server, which has the statement under the same SQLSTATE."
)

_Results = list[PGresult]


class StandingSession(Session):
    def __init__(self, dsn: str, session: Session) -> None:
        self._dsn = dsn
        self._present = session
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, dsn: str) -> StandingSession:
        return cls(dsn, await Session.open(dsn))

    async def run(self, queries: Sequence[Query]) -> _Results:
        return await self._send(lambda session: session.run(queries))

    async def once(self, *queries: Query) -> _Results:
        return await self._send(lambda session: session.once(*queries))

    @property
    def broken(self) -> bool:
        return self._present.broken

    async def close(self) -> None:
        await self._present.close()

    async def _send(self, send: Callable[[Session], Awaitable[_Results]]) -> _Results:
        """Again on a new connection when the present one turns out to be gone; an absent server is told at once."""
        for last in (*[False] * (TRIES - 1), True):
            try:
                async with self._turn:  # whoever waits here does not find out on a connection that broke meanwhile
                    return await send(await self._connected())
            except Disconnected as failure:
                if last:
                    raise _lost(failure) from None
            except DatabaseError as error:
                if error.sqlstate.startswith("HF"):
                    raise
                raise StoreError(
                    f"The database refused it: {error.text}",
                    code="STORE_REFUSED",
                    hint=REFUSED_HINT,
                    sqlstate=error.sqlstate,
                ) from None
        raise AssertionError("the last try answers or raises")

    async def _connected(self) -> Session:
        if self._present.broken:
            await self._present.close()
            self._present = await Session.open(self._dsn)
        return self._present


def _lost(failure: Disconnected) -> StoreError:
    return StoreError(
        f"The connection to PostgreSQL was lost: {failure}",
        code="STORE_UNREACHABLE",
        hint="Check that the server is up, and try again.",
    )
