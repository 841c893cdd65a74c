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
CROWDS_AT_LENGTH, SIZE_AT_LENGTH = {"short": (1, 25), "long": (20, 250)}[PROFILE]
ENDS = ("completed", "failed", "cancelled", "aborted")


async def test_random_sagas_keep_their_promises(holdfast_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = await _random_sagas(holdfast_server, capsys, CROWDS, SIZE)
    found = figures(run, SEED, CROWDS * SIZE)
    with capsys.disabled():
        print("", *run.broken, report.table(found), sep="\n")
    if PROFILE == "long":
        report.write_page(found, {"took": f"{run.took / 60:.0f} minutes"}, "random sagas")
    missed = [report.line(figure) for figure in found if not figure.ok]
    assert not missed, "\n".join([*missed, *run.broken])
    assert min(run.counted[end] for end in ENDS) > 0, "not everything was met"


async def test_so_they_do_with_the_fast_paths_off(
    holdfast_server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is decided and written the general way, in the worker processes too."""
    monkeypatch.setenv("HOLDFAST_FAST_PATHS", "0")
    run = await _random_sagas(holdfast_server, capsys, CROWDS_AT_LENGTH, SIZE_AT_LENGTH)
    missed = [report.line(figure) for figure in figures(run, SEED, CROWDS_AT_LENGTH * SIZE_AT_LENGTH) if not figure.ok]
    assert not missed, "\n".join([*missed, *run.broken])


async def _random_sagas(server: str, capsys: pytest.CaptureFixture[str], crowds: int, size: int) -> Run:
    run = Run()
    for number in range(crowds):
        first = SEED + number * size
        with copied_database(server) as database:
            run.add(await run_crowd(database.dsn, range(first, first + size), kills=1 + number % 2))
        if crowds > 1:
            with capsys.disabled():
                print(f"\n{run.counted['sagas']} sagas, {run.took:.0f} s", end="", flush=True)
    return run
