from __future__ import annotations

from collections.abc import Iterator

import pytest
from pools import Pooled, kinds, through


@pytest.fixture(params=kinds())
def pooled(request: pytest.FixtureRequest, holdfast_dsn: str) -> Iterator[Pooled]:
    with through(request.param, holdfast_dsn) as address:
        yield Pooled(address, holdfast_dsn)
