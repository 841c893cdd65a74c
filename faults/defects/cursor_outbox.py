"""Defect 10: queued signals are read by what is newer than the last look; what is committed late is never seen."""

from __future__ import annotations

from typing import Any

from faults.defects.patching import replace, reword
from holdfast.runtime.commit.clock import DatabaseClock
from holdfast.store.pg.statements import SQL, Query

_seen = [0]


def apply() -> None:
    reword(
        "claim_instances",
        (
            "order by s.ripe_at",
            "where s.ripe_at > to_timestamp($2::bigint / 1000000.0 + 946684800)\norder by s.ripe_at",
        ),
    )
    statement = SQL.all["claim_instances"]
    plain = statement.one

    def one(*scalars: Any) -> Query:
        return plain(*scalars, _seen[0])

    replace(statement, "one", one)
    observe = DatabaseClock.__dict__["observe"]

    def observe_and_remember(clock: DatabaseClock, now: int) -> None:
        observe(clock, now)
        _seen[0] = max(_seen[0], now)

    replace(DatabaseClock, "observe", observe_and_remember)
