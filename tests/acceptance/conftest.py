from __future__ import annotations

from collections.abc import Iterator

import pytest

from running import Evidence


@pytest.fixture
def evidence(holdfast_dsn: str) -> Iterator[Evidence]:
    evidence = Evidence(holdfast_dsn)
    yield evidence
    evidence.close()
