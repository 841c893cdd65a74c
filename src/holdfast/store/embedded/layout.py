"""Layout of an embedded server's directory, and the locks by which processes agree on it.

    <directory>/
      holdfast-embedded   the mark that the directory is ours, and the lock that start and stop take
      alive.lock          locked by the server's own processes as long as one of them lives
      server/             0700, of the account the server runs as
        data/  conf/  log/  run/ (the socket)  complete (written when the first start was finished)

`alive.lock` is the truth about life: every process of the server inherits the locked descriptor, so the kernel frees it
when the last one is gone, however it died. Process ids in files get stale and are reused; this lock cannot be.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.settings import Settings
from holdfast.store.embedded.account import Account, account_for
from holdfast.store.embedded.binaries import make_public

MARK = "holdfast-embedded"
PORT = 5432
_NOT_CONTENT = {"lost+found"}
_ROOT_HOME = Path("/var/lib/holdfast")
_LONGEST_SOCKET = 103
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")


@dataclass(frozen=True, slots=True)
class Layout:
    directory: Path
    account: Account

    @property
    def server(self) -> Path:
        return self.directory / "server"

    @property
    def data(self) -> Path:
        return self.server / "data"

    @property
    def conf(self) -> Path:
        return self.server / "conf"

    @property
    def log(self) -> Path:
        return self.server / "log"

    @property
    def complete(self) -> Path:
        return self.server / "complete"

    @property
    def socket(self) -> Path:
        """Inside the directory when its path fits into a socket address and needs no quoting, else a short one."""
        inside = self.server / "run"
        if len(os.fsencode(inside / f".s.PGSQL.{PORT}")) <= _LONGEST_SOCKET and _PLAIN_PATH.fullmatch(str(inside)):
            return inside
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]
        return Path("/tmp") / f"holdfast-{self.account.uid}-{digest}"  # noqa: S108 - ownership is checked before use

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """One process at a time initialises, starts or stops here."""
        descriptor = _open_lock(self.directory / MARK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def take_life(self) -> int | None:
        """The locked descriptor a new server inherits, or None while processes of an older one live."""
        descriptor = _open_lock(self.directory / "alive.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def lives(self) -> bool:
        descriptor = self.take_life()
        if descriptor is None:
            return True
        os.close(descriptor)
        return False


def default_home() -> Path:
    configured = Settings.from_environment().home
    if configured is not None:
        return configured
    if os.geteuid() == 0:
        return _ROOT_HOME  # root's own home is closed to the account the server runs as
    shared = os.environ.get("XDG_DATA_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".local" / "share") / "holdfast"


def is_home_chosen() -> bool:
    """Check whether the configuration names a place for the data."""
    return Settings.from_environment().home is not None


def existing_layout(directory: Path) -> Layout | None:
    """The layout of a directory that is ours, or None; changes nothing."""
    directory = directory.resolve()
    if not (directory / MARK).is_file():
        return None
    return Layout(directory, account_for(_owner(directory)))


def prepare_layout(directory: Path) -> Layout:
    """Make the directory ours if it is new or empty; refuse anything else."""
    directory = directory.resolve()
    account = account_for(_owner(directory))
    try:
        _refuse_foreign(directory)
        _refuse_unreachable(directory, account)
        make_public(directory)
        layout = Layout(directory, account)
        os.close(_open_lock(directory / MARK))
        with layout.exclusive():
            _make_private(layout.server, account)
    except (PermissionError, NotADirectoryError) as refusal:
        raise _unreachable(directory, account, Path(refusal.filename or directory)) from refusal
    return layout


def check_socket_directory(layout: Layout) -> None:
    """Require a socket directory that belongs to the account and is closed to others: its clients are trusted."""
    layout.account.run(["/bin/mkdir", "-m", "700", layout.socket])
    try:
        found = layout.socket.lstat()
    except FileNotFoundError:
        raise _unreachable(layout.directory, layout.account, layout.socket.parent) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != layout.account.uid or found.st_mode & 0o077:
        raise StoreError(
            f"The socket directory {layout.socket} is not a private directory of the user {layout.account.name!r}.",
            code="EMBEDDED_DIRECTORY_FOREIGN",
            hint="Find out who made it and remove it, or use a data directory with a shorter path.",
        )


def _owner(directory: Path) -> int | None:
    for path in (directory / "server", directory):
        try:
            return path.lstat().st_uid
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
    return None


def _refuse_unreachable(directory: Path, account: Account) -> None:
    present = directory
    while not present.exists():
        present = present.parent
    blocked = account.first_blocked(present)
    if blocked is not None:
        raise _unreachable(directory, account, blocked)


def _refuse_foreign(directory: Path) -> None:
    if directory.is_dir():
        names = {entry.name for entry in directory.iterdir()}
        if MARK in names or not names - _NOT_CONTENT:
            return
    elif not directory.exists():
        return
    raise StoreError(
        f"{directory} has content that Holdfast did not make; nothing was touched.",
        code="EMBEDDED_DIRECTORY_FOREIGN",
        hint="Name an empty or new directory.",
    )


def _make_private(directory: Path, account: Account) -> None:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, 0o700)
        if not account.is_current:
            os.fchown(descriptor, account.uid, account.gid)
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:  # the directory's owner must be able to use it without root later
        os.fchown(descriptor, path.parent.stat().st_uid, -1)
    return descriptor


def _unreachable(directory: Path, account: Account, blocked: Path) -> StoreError:
    return StoreError(
        f"The embedded PostgreSQL cannot live in {directory}: the user {account.name!r} it runs as has no way through "
        f"{blocked}.",
        code="EMBEDDED_DIRECTORY_UNREACHABLE",
        hint="Name a directory that user can reach, such as one below /var/lib/holdfast (HOLDFAST_HOME moves the "
        "default); permissions of existing directories are never changed.",
        blocked=str(blocked),
    )
