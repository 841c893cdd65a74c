"""A primary and a streaming standby on this machine, and what can happen to them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psycopg

from holdfast.store.embedded.account import Account, account_for
from holdfast.store.embedded.binaries import Installation, find_installation, runnable_by
from holdfast.store.embedded.layout import default_home

PORT: Final = 5432
PATIENCE: Final = 60.0
SETTINGS: Final = {
    "listen_addresses": "",
    "port": str(PORT),
    "wal_level": "replica",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "hot_standby": "on",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms",
    "timezone": "UTC",
}


class Cluster:
    """One PostgreSQL of the wheel, on a socket in a directory of its own."""

    def __init__(self, place: Path, account: Account, installation: Installation) -> None:
        self.data = place / "data"
        self.socket = place / "run"
        self._log = place / "log"
        self._account = account
        self._bin = installation.bin
        self.run("/bin/mkdir", "-m", "700", place, self.socket)

    def run(self, *command: str | Path) -> None:
        outcome = self._account.run(command)
        assert outcome.returncode == 0, f"{command}: {outcome.stderr} {self.log}"

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def dsn(self) -> str:
        return f"postgresql://holdfast@/postgres?host={quote(str(self.socket), safe='')}&port={PORT}"

    def initialise(self) -> None:
        options = ("--username", "holdfast", "--encoding", "UTF8", "--locale", "C", "--auth", "trust", "--no-sync")
        self.run(self._bin / "initdb", "--pgdata", self.data, *options)

    def copy_from(self, primary: Cluster) -> None:
        """As a standby that streams: `--write-recovery-conf` leaves the signal file and the address."""
        address = f"host={primary.socket} port={PORT} user=holdfast application_name=standby"
        self.run(
            self._bin / "pg_basebackup", "--pgdata", self.data, "--dbname", address, "--write-recovery-conf",
            *("--checkpoint", "fast", "--wal-method", "stream", "--no-sync"),
        )  # fmt: skip

    def start(self, **settings: str) -> None:
        chosen = {**SETTINGS, "unix_socket_directories": str(self.socket), **settings}
        options = " ".join(f"-c {name}='{value}'" for name, value in chosen.items())
        self.run(
            self._bin / "pg_ctl", "start", "--wait", "--pgdata", self.data, "--log", self._log, "--options", options
        )

    def promote(self) -> None:
        self.run(self._bin / "pg_ctl", "promote", "--wait", "--pgdata", self.data)

    @property
    def processes(self) -> list[int]:
        """The postmaster and its children; empty when it does not run."""
        try:
            postmaster = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        except FileNotFoundError:
            return []
        return [postmaster, *_children(postmaster)]

    def kill(self) -> None:
        """Like a machine that loses power: all processes at once, the postmaster first so that none is replaced."""
        for pid in self.processes:
            _kill(pid, signal.SIGKILL)
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self.processes:
            outcome = self._account.run(
                [self._bin / "pg_ctl", "stop", "--wait", "--pgdata", self.data, "--mode", "immediate"]
            )
            assert outcome.returncode == 0 or not self.processes, outcome.stderr

    def ask(self, question: str) -> Any:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(question.encode())
            row = cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    def until(self, question: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.ask(question):
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {question}"
            time.sleep(0.05)


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == parent:
                found.append(int(entry.name))
    return found


def _kill(pid: int, order: signal.Signals) -> None:
    try:
        os.kill(pid, order)
    except ProcessLookupError:
        return


class Pair:
    """`dsn` names both hosts; libpq finds the one that takes writes."""

    def __init__(self, primary: Cluster, standby: Cluster) -> None:
        self.primary = primary
        self.standby = standby
        hosts = ",".join(quote(str(cluster.socket), safe="") for cluster in (primary, standby))
        self.dsn = f"postgresql://holdfast@/postgres?host={hosts}&port={PORT},{PORT}&target_session_attrs=read-write"

    def fail_over(self) -> None:
        self.primary.kill()
        self.standby.promote()


@contextmanager
def streaming_pair(*, synchronous: bool) -> Iterator[Pair]:
    """Synchronous: the primary answers a COMMIT when the standby has it on disk."""
    home = Path(tempfile.mkdtemp(prefix="hf-pair-"))
    account = account_for(None)
    installation = runnable_by(account, find_installation(), default_home())
    home.chmod(0o755)
    os.chown(home, account.uid, account.gid)
    primary, standby = (Cluster(home / name, account, installation) for name in ("a", "b"))
    clusters: Sequence[Cluster] = (primary, standby)
    try:
        primary.initialise()
        primary.start()
        standby.copy_from(primary)
        standby.start()
        primary.until("select count(*) = 1 from pg_stat_replication where state = 'streaming'")
        if synchronous:
            with psycopg.connect(primary.dsn, autocommit=True) as connection:
                connection.execute("alter system set synchronous_standby_names = 'standby'")
                connection.execute("select pg_reload_conf()")
            primary.until("select count(*) = 1 from pg_stat_replication where sync_state = 'sync'")
        yield Pair(primary, standby)
    finally:
        for cluster in clusters:
            cluster.stop()
        shutil.rmtree(home)
