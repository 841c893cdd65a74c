"""The month of a batch, so that its statements can name that month's partitions.

A statement on a partitioned table locks and opens every partition each time it runs: those of a year as well as the one
it writes to. Nearly every batch lies in one month, so the statements of the commit path have a variant per month
(`Statement.in_month`). A batch that reaches back into another month, or into a partition that does not exist yet, takes
the statement on the whole table, which does the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from holdfast.core.model.timestamps import from_datetime
from holdfast.store.pg.session import BEGIN, COMMIT, ROLLBACK, DatabaseError, Session, rows
from holdfast.store.pg.statements import SQL, Statement, is_of_a_month
from holdfast.store.pg.transaction import PIN

_ASK_AGAIN: Final = 60.0  # seconds; a month that is missing is made by maintenance, sooner or later


class Month(NamedTuple):
    """Both partitions of it exist: of steps and of events."""

    name: str  # as the partitions end: 202611
    first: int
    next: int

    @classmethod
    def named(cls, name: str) -> Month:
        year, month = int(name[:4]), int(name[4:])
        following = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
        return cls(name, from_datetime(datetime(year, month, 1, tzinfo=UTC)), from_datetime(following))

    def has_all(self, moments: Iterable[int]) -> bool:
        first, next = self.first, self.next
        return all(first <= moment < next for moment in moments)


class Months:
    """Partitions this process knows to exist. An unknown one costs a little time and nothing else."""

    def __init__(self) -> None:
        self._known: tuple[Month, ...] = ()
        self._asked_at = -_ASK_AGAIN

    def at(self, now: int) -> Month | None:
        return next((month for month in self._known if month.first <= now < month.next), None)

    async def look(self, session: Session, now: int) -> None:
        """Read which months there are, when this one is not among those known."""
        if self.at(now) is not None or time.monotonic() - self._asked_at < _ASK_AGAIN:
            return
        self._asked_at = time.monotonic()
        try:
            answers = await session.run([BEGIN, PIN, SQL.list_months.one(), COMMIT])
        except DatabaseError:
            await session.run([ROLLBACK])
            return
        self._known = tuple(Month.named(name.decode()) for (name,) in rows(answers[2]))

    def are_to_blame(self, failure: Exception) -> bool:
        """A partition that was named is not there any more, or not ours to use: forgotten, and asked for later."""
        if not isinstance(failure, DatabaseError) or not is_of_a_month(failure.statement):
            return False
        if not failure.sqlstate.startswith("42"):
            return False
        self._known, self._asked_at = (), time.monotonic()
        return True


# The statements that exist per month, with the columns of their rows that say where a step lies. What they insert lies
# at the moment of the commit.
MONTHLY: Final[dict[str, tuple[int, ...]]] = {
    "begin_instances": (),
    "advance_steps": (10,),
    "finish_instances": (8,),
    "undo_steps": (7, 13, 18),
    "end_rollbacks": (8, 14),
    "open_steps": (),
    "close_steps": (2,),
    "insert_events": (),
}


def suited(name: str, batch: Sequence[tuple[Any, ...]], month: Month | None) -> Statement:
    statement, places = SQL.all[name], MONTHLY.get(name)
    if month is None or places is None:
        return statement
    for place in places:
        if not month.has_all([row[place] for row in batch]):
            return statement
    return statement.in_month(month.name)
