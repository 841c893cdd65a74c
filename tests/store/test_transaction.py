"""How a transaction of a worker begins: the same on a settled connection as on any other."""

from __future__ import annotations

import pytest

from holdfast.store.pg.connect import Address
from holdfast.store.pg.session import BEGIN, ROLLBACK, Query, Session, rows
from holdfast.store.pg.statements import TEXTS
from holdfast.store.pg.transaction import clock_of, pin, pin_impatiently

pytestmark = pytest.mark.anyio

SETTINGS = (
    "plan_cache_mode", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan", "jit",
    "lock_timeout",
)  # fmt: skip


def read_settings() -> Query:
    names = ", ".join(f"current_setting('{name}')" for name in ("role", *SETTINGS))
    TEXTS[b"test_settings"] = f"select {names}".encode()
    return Query(b"test_settings", [])


@pytest.mark.parametrize(("begin", "patience"), [(pin, b"2s"), (pin_impatiently, b"100ms")])
async def test_a_settled_session_begins_like_any_other(holdfast_dsn: str, begin: object, patience: bytes) -> None:
    found = list[list[bytes]]()
    for opening in (Session.open_settled(holdfast_dsn), Session.open(holdfast_dsn)):
        session = await opening
        assert callable(begin)
        results = await session.run([BEGIN, begin(session), read_settings(), ROLLBACK])
        found += rows(results[2])
        await session.close()
    assert found == [[b"holdfast_worker", b"force_generic_plan", *[b"off"] * 5, patience]] * 2


async def test_the_clock_is_read_either_way(holdfast_dsn: str) -> None:
    times = list[int]()
    for opening in (Session.open_settled(holdfast_dsn), Session.open(holdfast_dsn)):
        session = await opening
        results = await session.run([BEGIN, pin_impatiently(session), ROLLBACK])
        times.append(clock_of(results[1]))
        await session.close()
    assert 0 <= times[1] - times[0] < 60_000_000


async def test_nothing_is_left_on_a_pooled_connection(holdfast_dsn: str) -> None:
    session = await Session.open_settled(Address(holdfast_dsn, pooled=True))
    assert not session.is_settled
    [result] = await session.run([read_settings()])
    await session.close()
    assert rows(result)[0][:2] == [b"none", b"auto"]
