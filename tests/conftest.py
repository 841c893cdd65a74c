from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from holdfast.store import embedded
from running import Evidence, fast_place

# What a property says holds on a busy machine, too; time has tests of its own.
settings.register_profile("without a clock", deadline=None)
settings.load_profile("without a clock")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def evidence(holdfast_dsn: str) -> Iterator[Evidence]:
    evidence = Evidence(holdfast_dsn)
    yield evidence
    evidence.close()


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory for servers of the test's own; open, because under root the server runs as another account."""
    place = Path(tempfile.mkdtemp(prefix="hf-home-", dir=fast_place()))
    place.chmod(0o755)
    yield place
    place.chmod(0o755)
    for mark in place.rglob("holdfast-embedded"):
        embedded.stop(mark.parent, mode="immediate")
    shutil.rmtree(place)


@pytest.fixture
def own_server(home: Path) -> tuple[Path, str]:
    """A server that a test may stop and crash: its directory and its address."""
    directory = home / "pg"
    return directory, embedded.start(directory).dsn
