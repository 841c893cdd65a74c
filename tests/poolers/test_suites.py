"""Tests that were written without a pooler in mind pass through one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pools import kinds

TESTS = Path(__file__).parents[1]
SHORT = ("fundamentals/test_01_first_flow.py", "fundamentals/test_06_control.py", "fundamentals/test_07_looking.py")
SUITES = ("fundamentals",) if "HOLDFAST_POOLER" in os.environ else SHORT  # `make pooler` takes its time


@pytest.mark.parametrize("kind", kinds()[:1])
def test_the_suite_passes_through_a_pooler(kind: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "through_pooler", "-p", "no:cacheprovider", "-p", "no:xdist"]
    outcome = subprocess.run(
        [*command, *(str(TESTS / suite) for suite in SUITES)],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "HOLDFAST_THROUGH": kind},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-8000:] + outcome.stderr[-2000:]
