"""A PostgreSQL of the harness's own that can be crashed: durable settings, a directory of its own, fresh databases."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from holdfast.store import embedded
from holdfast.store.admin.schema import migrate
from holdfast.testing import install

# Durable like any other. One syncfs instead of an fsync per file before recovery: only the time it takes differs.
SETTINGS: Final = {"max_connections": "300", "recovery_init_sync_method": "syncfs"}


class Cluster:
    """`crash` and `restart` keep the data; `end` removes everything."""

    def __init__(self, *, settings: Mapping[str, str] | None = None, place: Path | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        # Below /tmp and open: the account the server runs as has to get there.
        self._place = place or Path(tempfile.mkdtemp(prefix="hf-faults-"))
        self._place.chmod(0o755)
        self.directory = self._place / "pg"
        self._templates: dict[bool, str] = {}
        self.crashes = 0
        self.restart()

    def restart(self) -> None:
        """Bring the server up, recovering from whatever happened to it."""
        self.server = embedded.start(self.directory, settings=self._settings)

    def crash(self) -> None:
        """The immediate shutdown: no checkpoint, no goodbye, recovery at the next start."""
        embedded.stop(self.directory, mode="immediate")
        self.crashes += 1

    def crash_hard(self) -> None:
        """kill -9 of the postmaster; what it leaves behind ends by itself."""
        os.kill(self.server.pid, signal.SIGKILL)
        self.crashes += 1

    def end(self) -> None:
        embedded.stop(self.directory, mode="immediate")
        shutil.rmtree(self._place)

    @property
    def dsn(self) -> str:
        """An administrator's database."""
        return self.server.dsn

    def database(self, *, movable_clock: bool = False) -> str:
        """The address of a new database with the current schema."""
        template = self._templates.get(movable_clock)
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            if template is None:
                template = f"template_{uuid.uuid4().hex[:8]}"
                admin.execute(sql.SQL("create database {}").format(sql.Identifier(template)))
                (install if movable_clock else migrate)(make_conninfo(self.dsn, dbname=template))
                self._templates[movable_clock] = template
            name = f"run_{uuid.uuid4().hex[:8]}"
            admin.execute(
                sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
            )
        return make_conninfo(self.dsn, dbname=name)

    def drop(self, dsn: str) -> None:
        """Databases of finished scenarios would only make recovery and vacuum slower."""
        name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
        with psycopg.connect(self.dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def version(self) -> str:
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("select current_setting('server_version')").fetchone()
        assert row is not None
        return str(row[0])

    def log_mentions(self, text: str) -> int:
        """How often the server said something, over all its log files."""
        logs = (self.directory / "server" / "log").glob("postgresql-*.log")
        return sum(path.read_text(errors="replace").count(text) for path in logs)


# A crash of the server's processes leaves what they wrote with the kernel: without waiting for the disk the short
# profile meets the same faults sooner. Full runs wait.
IMPATIENT: Final = {"fsync": "off", "full_page_writes": "off"}
_shared: Cluster | None = None
_settings: dict[str, str] = {}


def hurry() -> None:
    """From now on, the run's one server does not wait for the disk."""
    _settings.update(IMPATIENT)


def shared() -> Cluster:
    """One cluster for the whole run, started when first asked for; scenarios take a database each, one at a time."""
    global _shared
    if _shared is None:
        _shared = Cluster(settings=_settings)
    return _shared


def stop_shared() -> None:
    global _shared
    if _shared is not None:
        _shared.end()
        _shared = None


@contextmanager
def database(*, movable_clock: bool = False) -> Iterator[tuple[Cluster, str]]:
    """The shared cluster, running, and a database of its own in it that is dropped afterwards."""
    cluster = shared()
    dsn = cluster.database(movable_clock=movable_clock)
    try:
        yield cluster, dsn
    finally:
        cluster.restart()
        cluster.drop(dsn)


def ask(dsn: str, question: str, *values: Any) -> list[tuple[Any, ...]]:
    """One question on a connection of its own, which a crash between two questions cannot hurt."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(question, values).fetchall()
