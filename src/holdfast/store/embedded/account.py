"""The operating system user the server runs as.

PostgreSQL refuses to run as root, so under root every process of the server, and every file written into its
directory, belongs to an unprivileged account. Files are written *by a process of that account*: root never follows
a link that the account could have planted. Otherwise the account is simply the current user.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreError

PREFERRED_NAMES = ("holdfast", "postgres", "nobody")
# The caller's PG* and locale variables must not reach the server or its tools. The server's processes keep the memory
# of one large batch for the next: glibc would hand it back and get it again, page by page.
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "TZ": "UTC",
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TOP_PAD_": str(2**20),
}
_WRITE = 'cat >"$1.new" && mv -f "$1.new" "$1"'
_FIRST_BLOCKED = 'for path in "$@"; do test -x "$path" || { printf %s "$path"; exit 1; }; done'


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int

    @property
    def is_current(self) -> bool:
        return self.uid == os.geteuid()

    def run(
        self, command: Sequence[str | Path], *, text: str | None = None, keep: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end as this account; `keep` are file descriptors it inherits."""
        switch = None if self.is_current else self
        try:
            return subprocess.run(  # noqa: S603 - fixed programs, arguments are never parsed by a shell
                [os.fspath(part) for part in command],
                input=text if text is not None else "",
                encoding="utf-8",
                errors="replace",
                capture_output=True,
                check=False,
                cwd="/",
                env=_ENVIRONMENT,
                umask=0o077,
                user=switch and switch.uid,
                group=switch and switch.gid,
                extra_groups=None if switch is None else [],
                pass_fds=keep,
                start_new_session=True,
            )
        except PermissionError as refusal:
            raise StoreError(
                f"Cannot run {command[0]} as the user {self.name!r}: {refusal.strerror}.",
                code="EMBEDDED_UNAVAILABLE",
                hint="Run as an ordinary user, or give this process the right to change its user (CAP_SETUID, "
                "CAP_SETGID), or set HOLDFAST_DSN to a PostgreSQL of your own.",
            ) from refusal

    def write(self, path: Path, text: str) -> None:
        outcome = self.run(["/bin/sh", "-c", _WRITE, "sh", path], text=text)
        if outcome.returncode:
            raise StoreError(
                f"Cannot write {path} as the user {self.name!r}: {outcome.stderr.strip()}",
                code="EMBEDDED_DIRECTORY_UNREACHABLE",
                hint="Check that the disk has room and that the directory still belongs to that user.",
            )

    def first_blocked(self, path: Path) -> Path | None:
        """The outermost directory on the way to `path` (included) this account cannot enter, if any."""
        outcome = self.run(["/bin/sh", "-c", _FIRST_BLOCKED, "sh", *reversed([path, *path.parents])])
        return Path(outcome.stdout) if outcome.returncode else None

    def may(self, test: str, path: Path) -> bool:
        """Test file access as this account; `test` is a file test of the shell: `-r`, `-x` …"""
        return self.run(["/bin/sh", "-c", f'test {test} "$1"', "sh", path]).returncode == 0


def account_for(owner_uid: int | None) -> Account:
    """The account for a directory of this owner (None: not made yet).

    Under root a directory keeps the account that owns it, so a user's server stays usable after one call with sudo.
    """
    if os.geteuid() != 0:
        return _named(os.geteuid())
    if owner_uid:
        return _named(owner_uid)
    for name in PREFERRED_NAMES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise StoreError(
        "PostgreSQL does not run as root, and this system has no unprivileged user to run it as.",
        code="EMBEDDED_UNAVAILABLE",
        hint="Create one (useradd --system holdfast), or set HOLDFAST_DSN to a PostgreSQL of your own.",
    )


def _named(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise StoreError(
            f"User id {uid} has no name on this system, and PostgreSQL's initdb needs one.",
            code="EMBEDDED_UNAVAILABLE",
            hint="Run as a user that is listed in /etc/passwd, or set HOLDFAST_DSN to a PostgreSQL of your own.",
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
