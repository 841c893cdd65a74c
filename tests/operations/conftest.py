from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import embedded
from running import Evidence


@pytest.fixture
def evidence(holdfast_dsn: str) -> Iterator[Evidence]:
    evidence = Evidence(holdfast_dsn)
    yield evidence
    evidence.close()


@pytest.fixture
def own_server() -> Iterator[tuple[Path, str]]:
    """Below /tmp and open: under root, pytest's own directories are closed to the account the server runs as."""
    place = Path(tempfile.mkdtemp(prefix="hf-operations-"))
    place.chmod(0o755)
    directory = place / "pg"
    try:
        yield directory, embedded.start(directory).dsn
    finally:
        embedded.stop(directory, mode="immediate")
        shutil.rmtree(place)
