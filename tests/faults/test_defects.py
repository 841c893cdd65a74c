"""Seeded defects are written against the engine's own text: whoever changes that has to write them anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from faults.defects import DEFECTS

ROOT = Path(__file__).resolve().parents[2]
APPLY = "import sys; from faults.defects import named; named(sys.argv[1]).apply()"


@pytest.mark.parametrize("name", [defect.name for defect in DEFECTS])
def test_a_defect_still_finds_what_it_breaks(name: str) -> None:
    """In a process of its own: there is no way back."""
    ended = subprocess.run(
        [sys.executable, "-c", APPLY, name],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout
