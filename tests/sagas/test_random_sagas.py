"""Random sagas: whatever fails, hangs, dies or is interfered with, each of them keeps its promises.

`HOLDFAST_PROFILE=long pytest tests/sagas/test_random_sagas.py -s` runs 5,000 of them and prints the figures.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from random_sagas import run_crowd

from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

PROFILE = os.environ.get("HOLDFAST_PROFILE", "short")
CROWDS, SIZE = {"short": (1, 150), "long": (20, 250)}[PROFILE]
SLOWEST = 300.0  # milliseconds for each saga on the average, of an unhurried machine


async def test_random_sagas_keep_their_promises(holdfast_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    total: Counter[str] = Counter()
    for number in range(CROWDS):
        with copied_database(holdfast_server) as database:
            total += await run_crowd(database.dsn, range(number * SIZE, (number + 1) * SIZE), kills=2)
    with capsys.disabled():
        print(f"\n{CROWDS * SIZE} random sagas, 0 broken promises: {dict(total.most_common())}")
    assert total["milliseconds"] / (CROWDS * SIZE) < SLOWEST
    assert min(total[end] for end in ("completed", "failed", "cancelled", "aborted")) > 0, "not everything was met"
