"""The server that test databases live on: HOLDFAST_TEST_DSN, else an embedded one shared by all sessions of a user.

Every test process holds a shared lock on one file while it uses the embedded server. Whoever leaves and finds nobody
else there cleans up and stops it; the next session starts it again and finds its templates. Locks of killed processes
are freed by the kernel, so at worst a server idles until the end of the next session.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.store import embedded
from holdfast.testing.database import drop_leftovers

VARIABLE: Final = "HOLDFAST_TEST_DSN"
# A test database is worth nothing after a crash of the machine, so nothing waits for the disk.
FAST: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "512MB",
    "max_connections": "300",
}


@contextmanager
def running_server() -> Generator[str]:
    """The address of an administrator's database on a running server."""
    if given := os.environ.get(VARIABLE, "").strip():
        yield given
        return
    directory = shared_directory()
    with _among_users(directory) as users:
        server = embedded.start(directory, settings=FAST)
        try:
            yield server.dsn
        finally:
            if _is_last(users):
                try:
                    drop_leftovers(server.dsn)
                finally:
                    embedded.stop(directory)


def shared_directory() -> Path:
    durable = embedded.default_directory()
    return durable.with_name(f"test-{durable.name}")


@contextmanager
def _among_users(directory: Path) -> Generator[int]:
    """Beside the directory, not in it: the embedded server takes only directories that hold nothing but its own."""
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    place = directory.with_name(f"{directory.name}.users")
    users = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield users
    finally:
        os.close(users)


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
