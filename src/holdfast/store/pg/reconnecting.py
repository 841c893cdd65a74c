"""Session that outlives its connection, for statements that may be sent twice: reads, and writes that carry their ids.

A commit may not be sent twice: whether one took effect must be read, so the committer keeps sessions of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from psycopg.pq.abc import PGresult

from holdfast.errors import StoreError
from holdfast.store.pg.session import Answer, DatabaseError, Disconnected, Session
from holdfast.store.pg.statements import Query

TRIES = 5
MOST: Final = 64  # transactions of one flush
REFUSED_HINT: Final = (
    "Change the value the sentence is about; if it is about none of yours, run `holdfast doctor` and look into the log"
    " of the server, which has the statement under the same SQLSTATE."
)

_Results = list[PGresult]


class _Asked(NamedTuple):
    queries: Sequence[Query]
    answer: asyncio.Future[_Results]


class StandingSession(Session):
    """Reconnecting session for many callers.

    Requests that arrive during a flush share the next one, each in a transaction of its own: a server with many callers
    waits once for all of them, and a lone caller waits for none.
    """

    def __init__(self, dsn: str, session: Session) -> None:
        self._dsn = dsn
        self._present = session
        self._asked: list[_Asked] = []
        self._serving: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, dsn: str) -> StandingSession:
        return cls(dsn, await Session.open(dsn))

    async def run(self, queries: Sequence[Query]) -> _Results:
        return await self.once(*queries)

    async def once(self, *queries: Query) -> _Results:
        answer: asyncio.Future[_Results] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(queries, answer))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="holdfast-standing-session")
        return await answer

    @property
    def broken(self) -> bool:
        return self._present.broken

    async def close(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        await self._present.close()

    async def _serve(self) -> None:
        asked: list[_Asked] = []
        try:
            while self._asked:
                asked, self._asked = self._asked[:MOST], self._asked[MOST:]
                await self._answer([one for one in asked if not one.answer.done()])  # some may have given up waiting
        except asyncio.CancelledError:
            _refuse([*asked, *self._asked], StoreError("The engine was closed.", code="ENGINE_CLOSED"))
            raise
        finally:
            self._serving = None

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        """All at once; if that costs the connection, one by one: it may be the doing of a single one of them."""
        try:
            answers = await self._ask([one.queries for one in asked], TRIES if len(asked) == 1 else 1)
        except Disconnected as failure:
            if len(asked) == 1:
                _refuse(asked, failure)
            else:
                for one in asked:
                    await self._answer([one])
        except Exception as failure:
            _refuse(asked, failure)
        else:
            for one, answer in zip(asked, answers, strict=True):
                if isinstance(answer, DatabaseError):
                    _refuse([one], answer)
                elif not one.answer.done():
                    one.answer.set_result(answer)

    async def _ask(self, transactions: Sequence[Sequence[Query]], tries: int) -> list[Answer]:
        """Send the transactions, again on a new connection if the present one is gone; report an absent server at
        once.
        """
        for left in reversed(range(tries)):
            try:
                return await (await self._connected()).each(transactions)
            except Disconnected:
                if not left:
                    raise
        raise AssertionError("the last try answers or raises")

    async def _connected(self) -> Session:
        if self._present.broken:
            await self._present.close()
            self._present = await Session.open(self._dsn)
        return self._present


def _refuse(asked: Sequence[_Asked], failure: Exception) -> None:
    for one in asked:
        if not one.answer.done():
            one.answer.set_exception(_told(failure))


def _told(failure: Exception) -> Exception:
    if isinstance(failure, Disconnected):
        return StoreError(
            f"The connection to PostgreSQL was lost: {failure}",
            code="STORE_UNREACHABLE",
            hint="Check that the server is up, and try again.",
        )
    if isinstance(failure, DatabaseError) and not failure.sqlstate.startswith("HF"):
        return StoreError(
            f"The database refused it: {failure.text}",
            code="STORE_REFUSED",
            hint=REFUSED_HINT,
            sqlstate=failure.sqlstate,
        )
    return failure
