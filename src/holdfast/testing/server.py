"""Server of test databases: HOLDFAST_TEST_DSN, else an embedded one shared by all sessions of a user.

Every test process holds a shared lock on one file while it uses the embedded server. The last one to leave cleans up
and stops it; the next session starts it again and finds its templates. Locks of killed processes are freed by the
kernel, so at worst a server idles until the end of the next session.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.settings import Settings
from holdfast.store import embedded
from holdfast.testing.database import drop_leftovers

VARIABLE: Final = "HOLDFAST_TEST_DSN"
# A test database is worth nothing after a crash of the machine, so nothing waits for the disk.
FAST: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_wal_size": "512MB",
    "shared_buffers": "256MB",  # every database that is dropped is looked for in all of them
    "max_connections": "300",
}
MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- only a directory of our own below it is used
ENOUGH_MEMORY: Final = 4 << 30


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
    """Choose a directory in memory where there is plenty of it, since a copy of a database is hundreds of small files;
    else on disk.
    """
    durable = embedded.default_directory()
    home = durable.parent if Settings.from_environment().home else _home_in_memory() or durable.parent
    return home / f"test-{durable.name}"


def _home_in_memory() -> Path | None:
    """A directory that is ours: anybody may have made one of that name."""
    home = MEMORY / f"holdfast-{os.geteuid()}"
    try:
        if not home.exists() and shutil.disk_usage(MEMORY).free < ENOUGH_MEMORY:
            return None
        home.mkdir(mode=0o755, exist_ok=True)
        found = home.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return home if is_ours else None


@contextmanager
def _among_users(directory: Path) -> Generator[int]:
    """Hold a shared lock on the file of users, beside the directory: the embedded server takes only a directory of its
    own.
    """
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
