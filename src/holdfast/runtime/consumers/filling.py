"""The past of consumers: take the steps that are left, in any process."""

from __future__ import annotations

from holdfast.runtime.consumers.answers import Answers
from holdfast.store import consumers
from holdfast.store.consumers import Filling
from holdfast.store.pg.session import Session

ABANDONED = "abandoned"


async def fill_all(session: Session, answers: Answers) -> int:
    """Take steps as long as they lead anywhere; how many consumers are still to be filled."""
    while left := await consumers.list_filling(session):
        if not any([await _step(session, answers, one) for one in left]):
            return len(left)
    return 0


async def fill_one(session: Session, answers: Answers, consumer: bytes) -> None:
    """Take steps for one consumer as long as they lead anywhere."""
    while True:
        mine = [one for one in await consumers.list_filling(session) if one.id == consumer]
        if not mine or not await _step(session, answers, mine[0]):
            return


async def _step(session: Session, answers: Answers, filling: Filling) -> bool:
    led, gates = await consumers.step(session, filling)
    closed = [await answers.try_close(gate, ABANDONED) for gate in gates]
    return led and all(closed)
