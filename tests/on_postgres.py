"""Run tests on another PostgreSQL than the embedded one: any from version 15 on is promised.

    python tests/on_postgres.py [arguments of pytest]

On the server of HOLDFAST_TEST_DSN if that is set; otherwise on each release that the system has installed below
/usr/lib/postgresql, in a cluster that lives as long as the run: owned by an unprivileged account, reached through a
socket of its own and nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from holdfast.store.embedded.account import Account, account_for
from holdfast.testing.server import FAST, VARIABLE
from running import fast_place

INSTALLED: Final = Path("/usr/lib/postgresql")
OLDEST: Final = 15
PATIENCE: Final = 60.0


def releases() -> list[Path]:
    """The directories of programs, oldest release first."""
    found = {int(bin.parent.name): bin for bin in INSTALLED.glob("*/bin") if bin.parent.name.isdigit()}
    return [found[major] for major in sorted(found) if major >= OLDEST and (found[major] / "initdb").exists()]


@contextmanager
def cluster(programs: Path) -> Iterator[str]:
    """The address of a new server; it is gone afterwards, with all that was in it.

    Who gets to the socket may be any role, and nobody but the account and root gets there: the directory is closed.
    """
    account = account_for(None)
    home = Path(tempfile.mkdtemp(prefix="hf-other-", dir=fast_place()))
    os.chown(home, account.uid, account.gid)
    data = home / "data"
    options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username=holdfast"]
    try:
        made = account.run([programs / "initdb", *options, "--pgdata", data])
        if made.returncode:
            sys.exit(f"initdb failed: {made.stderr.strip()}")
        with running(programs, data, account):
            yield f"user=holdfast dbname=postgres host={home}"
    finally:
        shutil.rmtree(home)


@contextmanager
def running(programs: Path, data: Path, account: Account) -> Iterator[None]:
    settings = {**FAST, "listen_addresses": "", "unix_socket_directories": str(data.parent), "timezone": "UTC"}
    server = subprocess.Popen(
        [str(programs / "postgres"), "-D", str(data), *(f"--{name}={value}" for name, value in settings.items())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        user=None if account.is_current else account.uid,
        group=None if account.is_current else account.gid,
        extra_groups=None if account.is_current else [],
    )
    try:
        _await_answer(server, f"user=holdfast dbname=postgres host={data.parent}")
        yield
    finally:
        server.send_signal(signal.SIGQUIT)  # nothing in it is worth a checkpoint
        server.wait(PATIENCE)


def _await_answer(server: subprocess.Popen[bytes], dsn: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(dsn).close()
            return
        except psycopg.OperationalError as failure:
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"The server does not answer: {failure}")
            time.sleep(0.05)


def run_tests(dsn: str, arguments: list[str]) -> int:
    with psycopg.connect(dsn) as connection:
        print(f"PostgreSQL {connection.info.server_version // 10_000}:", flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=os.environ | {VARIABLE: dsn}, check=False).returncode


def main(arguments: list[str]) -> int:
    if given := os.environ.get(VARIABLE, "").strip():
        return run_tests(given, arguments)
    found = releases()
    if not found:
        sys.exit(f"Set {VARIABLE} to the address of a PostgreSQL, or install one below {INSTALLED}.")
    failures = 0
    for programs in found:
        with cluster(programs) as dsn:
            failures += run_tests(dsn, arguments) != 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
