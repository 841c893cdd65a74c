"""How connections are opened: defaults, waits between tries, what is said about an address and what is found."""

from __future__ import annotations

from itertools import islice

import psycopg
import pytest
from pools import Pooled

from holdfast import Engine
from holdfast.errors import StoreError
from holdfast.store.pg.connect import Address, complete, dial, dial_blocking, is_pooled, listening_address, pauses
from holdfast.store.pg.session import PooledSession, Session

pytestmark = pytest.mark.anyio


async def test_a_pooler_is_found_out(pooled: Pooled) -> None:
    for dsn, expected in ((pooled.dsn, PooledSession), (pooled.direct, Session)):
        session = await Session.open(dsn)
        assert type(session) is expected
        await session.close()


async def test_what_is_said_about_an_address_counts(holdfast_dsn: str) -> None:
    session = await Session.open(Address(holdfast_dsn, pooled=True))
    assert type(session) is PooledSession
    await session.close()
    assert not is_pooled(Address(holdfast_dsn, pooled=False), relayed=True)
    assert is_pooled(holdfast_dsn, relayed=True)


def test_an_address_is_a_dsn_like_any_other(holdfast_dsn: str) -> None:
    address = Address(holdfast_dsn, direct="host=db")
    assert address == holdfast_dsn
    assert listening_address(address) == "host=db"
    assert listening_address(Address(holdfast_dsn)) == listening_address(holdfast_dsn) == holdfast_dsn
    psycopg.connect(address).close()


def test_the_environment_says_where_to_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DIRECT_DSN", "host=db")
    monkeypatch.setenv("HOLDFAST_POOLED", "no")
    assert listening_address(Engine("host=pooler").dsn) == "host=db"
    assert not is_pooled(Engine("host=pooler").dsn, relayed=True)
    assert is_pooled(Engine("host=pooler", pooled=True).dsn, relayed=False)
    assert listening_address(Engine("host=pooler", direct_dsn="host=other").dsn) == "host=other"


def test_of_several_hosts_the_one_that_takes_writes_is_meant() -> None:
    several: dict[str, object] = {"host": "one,two", "connect_timeout": "3"}
    complete(several)
    assert several["target_session_attrs"] == "read-write"
    assert several["connect_timeout"] == "3"
    single: dict[str, object] = {"host": "one"}
    complete(single)
    assert "target_session_attrs" not in single
    assert single["connect_timeout"] == 10


def test_pauses_grow_to_a_limit_and_differ() -> None:
    found = list(islice(pauses(2.0), 50))
    assert found[0] <= 0.1
    assert all(1.0 <= pause <= 2.0 for pause in found[10:])
    assert len(set(found)) == len(found)
    assert max(islice(pauses(0.2), 20)) <= 0.2


async def test_a_read_only_server_is_named_as_such(holdfast_dsn: str) -> None:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        connection.execute("do $$ begin execute format('alter database %I set default_transaction_read_only = on',"
                           " current_database()); end $$")  # fmt: skip
    with pytest.raises(StoreError) as refusal:
        await dial(holdfast_dsn)
    assert refusal.value.code == "STORE_READ_ONLY"


async def test_nobody_there(tmp_path: object) -> None:
    with pytest.raises(StoreError) as refusal:
        await dial(f"host={tmp_path} dbname=nothing user=nobody")
    assert refusal.value.code == "STORE_UNREACHABLE"


@pytest.mark.parametrize("dsn", ["nonsense hush-hush", "host=127.0.0.1 connect_timeout=soon password=hush-hush"])
async def test_an_address_that_cannot_be_read(dsn: str) -> None:
    with pytest.raises(StoreError) as refusal:
        await dial(dsn)
    with pytest.raises(StoreError) as blocked:
        dial_blocking(dsn)
    for told in (refusal.value, blocked.value):
        assert told.code == "DSN_INVALID"
        assert "hush-hush" not in f"{told}"
