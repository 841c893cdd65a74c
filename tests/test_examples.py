"""The demo keeps its word: it kills a worker, counts, and leaves nothing running."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.store import embedded

DEMO = Path(__file__).parent.parent / "examples" / "order.py"


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
