"""Random sagas: whatever fails, hangs, dies or is interfered with, each of them keeps its promises.

`HOLDFAST_PROFILE=long pytest tests/sagas/test_random_sagas.py -s` runs 5,000 of them, prints the figures and writes
them into docs/reliability.md. `HOLDFAST_SEED=150` begins with another saga.
"""

from __future__ import annotations

import os

import pytest
from random_sagas import Run, figures, run_crowd

from faults import report
from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

PROFILE = os.environ.get("HOLDFAST_PROFILE", "short")
SEED = int(os.environ.get("HOLDFAST_SEED", "0"))  # of the first saga
CROWDS, SIZE = {"short": (1, 150), "long": (20, 250)}[PROFILE]
ENDS = ("completed", "failed", "cancelled", "aborted")


async def test_random_sagas_keep_their_promises(holdfast_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run()
    for number in range(CROWDS):
        first = SEED + number * SIZE
        with copied_database(holdfast_server) as database:
            run.add(await run_crowd(database.dsn, range(first, first + SIZE), kills=1 + number % 2))
        if CROWDS > 1:
            with capsys.disabled():
                print(f"\n{run.counted['sagas']} sagas, {run.took:.0f} s", end="", flush=True)
    found = figures(run, SEED, CROWDS * SIZE)
    with capsys.disabled():
        print("", *run.broken, report.table(found), sep="\n")
    if PROFILE == "long":
        report.write_page(found, {"took": f"{run.took / 60:.0f} minutes"}, "random sagas")
    missed = [report.line(figure) for figure in found if not figure.ok]
    assert not missed, "\n".join([*missed, *run.broken])
    assert min(run.counted[end] for end in ENDS) > 0, "not everything was met"
