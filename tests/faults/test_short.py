"""The short profile of the fault harness: every scenario with small sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(path.stem for path in (ROOT / "faults" / "scenarios").glob("[a-z]*.py"))
SEED = 20_261
GROUPS = 6  # scenarios of a group share a process and a server, as they do in a full run


@pytest.mark.parametrize("names", [SCENARIOS[n::GROUPS] for n in range(GROUPS)], ids=" ".join)
def test_the_short_profile_holds(names: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "faults", "--short", "--only", *names, "--seed", str(SEED)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout


def test_there_is_a_scenario_for_each_bar() -> None:
    kernel = {"kills", "frozen", "recovery", "answers", "contention", "deaths", "throughput", "rollbacks"}
    assert kernel | {"tenants", "advances", "consumers", "stays"} <= set(SCENARIOS)
