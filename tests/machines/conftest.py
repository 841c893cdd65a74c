"""What tests of this folder start from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from machine_rows import Db

from holdfast.store.pg.reconnecting import StandingSession
from holdfast.store.pg.session import Session


@pytest.fixture
def db(holdfast_dsn: str) -> Iterator[Db]:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def session(holdfast_dsn: str) -> AsyncIterator[Session]:
    session = await StandingSession.open(holdfast_dsn)
    yield session
    await session.close()
