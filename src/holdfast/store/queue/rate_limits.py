"""The buckets of rate limits: rows that all workers take tokens from, one statement for any number of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int


class Bucket(NamedTuple):
    org: str
    key: str  # flow:step
    rate: float  # tokens per second
    burst: float  # the most it holds


class Turns(NamedTuple):
    granted: int  # of those that were asked for
    last: float  # seconds until the last of the others may come again; each before it a token's time earlier


async def take_turns(session: Session, wanted: Mapping[Bucket, int], ahead: float) -> dict[tuple[str, str], Turns]:
    asked = [(bucket.org, bucket.key, bucket.rate, bucket.burst, count) for bucket, count in sorted(wanted.items())]
    results = await session.once(PIN, SQL.take_turns.rows(asked, ahead))
    return {
        (org.decode(), key.decode()): Turns(read_int(granted), read_int(last) / 1_000_000)
        for org, key, granted, last in rows(results[1])
    }
