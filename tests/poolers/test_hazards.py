"""The poolers of these tests are as unforgiving as they should be: what is left on a connection is somebody else's."""

from __future__ import annotations

import psycopg
import pytest
from pools import Pooled
from servers import on_every_server

from holdfast import Engine
from holdfast.errors import StoreError

pytestmark = pytest.mark.anyio


def test_a_prepared_statement_is_on_one_server_only(pooled: Pooled) -> None:
    servers = on_every_server(pooled, "select count(*) from pg_prepared_statements")
    assert len(servers) == pooled.size
    with psycopg.connect(pooled.dsn, autocommit=True) as connection:
        connection.execute("prepare mine as select 1")
    counts = on_every_server(pooled, "select count(*) from pg_prepared_statements")
    assert sorted(counts.values()) == [0] * (pooled.size - 1) + [1]


def test_a_setting_is_inherited_by_somebody_else(pooled: Pooled) -> None:
    on_every_server(pooled, "select 1")
    with psycopg.connect(pooled.dsn, autocommit=True) as connection:
        connection.execute("set holdfast.org = 'theirs'")
    found = on_every_server(pooled, "select coalesce(current_setting('holdfast.org', true), '')")
    assert sorted(found.values()) == [""] * (pooled.size - 1) + ["theirs"]


async def test_preparing_all_the_same_ends_in_an_error_that_says_what_to_do(pooled: Pooled) -> None:
    """Two engines have more sessions than the pool has connections: somebody's statements are already there."""
    with pytest.raises(StoreError) as refusal:
        async with Engine(pooled.dsn, pooled=False), Engine(pooled.dsn, pooled=False):
            pass
    assert refusal.value.code == "STORE_POOLED"
    assert "HOLDFAST_POOLED" in refusal.value.hint
