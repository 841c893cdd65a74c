from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from http_server import Served, served
from office import Office, open_office

from holdfast import Engine
from holdfast.testing.database import copied_database


@pytest.fixture
async def server(engine: Engine) -> AsyncIterator[Served]:
    """A server without a worker of its own: tests drain the engine, or run one."""
    async with served(engine, request_patience=20.0) as server:
        yield server


@pytest.fixture(scope="module")
async def opened_office(holdfast_server: str) -> AsyncIterator[Office]:
    with copied_database(holdfast_server) as database:
        async with Engine(database.dsn) as engine, open_office(engine) as office:
            yield office


@pytest.fixture
def office(opened_office: Office) -> Iterator[Office]:
    opened_office.renew()
    yield opened_office
    opened_office.gate.set()  # nobody waits for a test that is over
