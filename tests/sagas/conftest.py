from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from shop import House, Shop

from holdfast import Engine
from holdfast.testing import copied_database


@pytest.fixture(scope="module")
async def house(holdfast_server: str) -> AsyncIterator[House]:
    """One engine with a running worker for all tests of a chapter: each of them has a flow of its own."""
    with copied_database(holdfast_server) as database:
        async with Engine(database.dsn) as engine:
            house = House(engine)
            async with engine.worker(scan=1.0, lease=15.0):
                yield house


@pytest.fixture
def shop(house: House, request: pytest.FixtureRequest) -> Shop:
    return house.shop(request.node.name)
