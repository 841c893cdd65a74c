"""The peers live in a virtual environment of their own: their pins never meet ours."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from benchmarks.children import ROOT

DIRECTORY = ROOT / "build" / "bench-env"
PACKAGES = ("dbos==3.3.0", "absurd-sdk==0.5.1", "absurdctl==0.5.1", "uvloop==0.23.0")


def peers_python() -> Path:
    """The interpreter of the peers' environment, created on first use and again when the packages change."""
    python = DIRECTORY / "bin" / "python"
    stamp = DIRECTORY / "installed"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print("installing the peers in build/bench-env …", flush=True)
    venv.create(DIRECTORY, with_pip=True, clear=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    stamp.write_text(wanted)
    return python


def peer_command(name: str) -> tuple[str, ...]:
    return (str(peers_python()), str(ROOT / "benchmarks" / "peers" / f"run_{name}.py"))
