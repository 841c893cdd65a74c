"""The demo keeps its word: it kills a worker, counts, and leaves nothing running."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import embedded

DEMO = Path(__file__).parent.parent / "examples" / "order.py"


@pytest.fixture
def home() -> Iterator[Path]:
    """Below /tmp: under root, pytest's own temporary directories are closed to the server's account."""
    place = Path(tempfile.mkdtemp(prefix="hf-demo-"))
    place.chmod(0o755)
    yield place
    for found in place.rglob("holdfast-embedded"):
        embedded.stop(found.parent, mode="immediate")
    shutil.rmtree(place)


def test_the_demo_holds_what_it_says_and_can_be_repeated(home: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", DEMO, "--orders", "100"],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "HOLDFAST_HOME": str(home)},
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        assert "was killed with SIGKILL; it held" in done.stdout
        assert "Nothing was lost and nothing was done twice" in done.stdout
        assert str(home / "demo") in done.stdout
        assert embedded.status(home / "demo") is None
