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
LONGEST = 2000  # seconds of its own time that a saga may take, all its pauses and repairs included


async def test_random_sagas_keep_their_promises(holdfast_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    total: Counter[str] = Counter()
    longest = 0
    for number in range(CROWDS):
        with copied_database(holdfast_server) as database:
            seen = await run_crowd(database.dsn, range(number * SIZE, (number + 1) * SIZE), kills=1 + number % 2)
        longest = max(longest, seen.pop("longest"))
        total += seen
        if CROWDS > 1:
            with capsys.disabled():
                print(f"\n{(number + 1) * SIZE} sagas, {total['milliseconds'] / 1000:.0f} s", end="", flush=True)
    with capsys.disabled():
        print(f"\n{CROWDS * SIZE} random sagas, 0 broken promises, the longest took {longest} s of its own time:")
        print(", ".join(f"{count} {what}" for what, count in total.most_common()))
    assert longest < LONGEST
    assert min(total[end] for end in ("completed", "failed", "cancelled", "aborted")) > 0, "not everything was met"
