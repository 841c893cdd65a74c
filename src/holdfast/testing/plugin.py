"""Fixtures for pytest, found through the entry point `holdfast`.

Imports wait until a fixture is asked for: pytest loads this module in every session.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine
    from holdfast.testing.database import Database


def pytest_configure() -> None:
    """HOLDFAST_FAILPOINT counts for the whole session."""
    if os.environ.get("HOLDFAST_FAILPOINT"):
        from holdfast.testing.failpoints import install_failpoints

        install_failpoints()


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[str]:
    """The address of a PostgreSQL for test databases: HOLDFAST_TEST_DSN, or an embedded one."""
    from holdfast.testing.server import running_server

    with running_server() as dsn:
        yield dsn


@pytest.fixture
def holdfast_database(holdfast_server: str) -> Iterator[Database]:
    """A new database with the current schema and a clock that `advance` can move; gone after the test."""
    from holdfast.testing.database import copied_database

    with copied_database(holdfast_server) as database:
        yield database


@pytest.fixture
def holdfast_dsn(holdfast_database: Database) -> str:
    """The address of this test's own database."""
    return holdfast_database.dsn


@pytest.fixture
async def engine(holdfast_dsn: str) -> AsyncIterator[Engine]:
    """An open engine on this test's own database, for tests that an async plugin runs."""
    from holdfast.runtime.engine import Engine

    async with Engine(holdfast_dsn) as engine:
        yield engine
