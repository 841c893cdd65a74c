"""One PostgreSQL for the whole run: fresh databases, proof of its durability, counters of what it did."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks.children import ROOT

DIRECTORY = ROOT / "build" / "bench-pg"
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
SHOWN = (*DURABLE, "shared_buffers", "max_wal_size", "checkpoint_timeout", "wal_compression", "max_connections")


class NotDurable(Exception):
    """Figures of a server that may lose commits would be worth nothing."""


@dataclass(frozen=True)
class Activity:
    """What the server did for one database: transactions committed, statements run, bytes of log written."""

    commits: int
    statements: int
    wal_bytes: int

    def since(self, before: Activity) -> Activity:
        return Activity(
            self.commits - before.commits, self.statements - before.statements, self.wal_bytes - before.wal_bytes
        )


class Server:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._refuse_unsafe()

    def dsn(self, database: str = "postgres") -> str:
        return make_conninfo(self._dsn, dbname=database)

    def url(self, database: str) -> str:
        """The same address as a URL, the only form SQLAlchemy takes."""
        parts = {key: str(value) for key, value in conninfo_to_dict(self._dsn).items() if value is not None}
        user = quote(parts.get("user", "postgres"), safe="")
        password = f":{quote(parts['password'], safe='')}" if "password" in parts else ""
        host, port = parts.get("host", "127.0.0.1"), parts.get("port", "5432")
        if host.startswith("/"):
            return f"postgresql://{user}{password}@/{database}?host={quote(host, safe='')}&port={port}"
        return f"postgresql://{user}{password}@{host}:{port}/{database}"

    def settings(self) -> dict[str, str]:
        with psycopg.connect(self.dsn()) as connection:
            rows = connection.execute(
                "select name, current_setting(name) from pg_settings where name = any(%s)", (list(SHOWN),)
            ).fetchall()
            version = connection.execute("select current_setting('server_version')").fetchone()
        found = dict(rows)
        assert version is not None
        return {"PostgreSQL": version[0], **{name: found[name] for name in SHOWN if name in found}}

    def fresh(self, database: str) -> None:
        """An empty database, and a checkpoint so that no measurement pays for the writes of the one before."""
        self.drop(database)
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(database)))
        self.settle()

    def settle(self) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("checkpoint")

    def drop(self, database: str) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database)))

    def exists(self, database: str) -> bool:
        with psycopg.connect(self.dsn()) as connection:
            row = connection.execute("select from pg_database where datname = %s", (database,)).fetchone()
        return row is not None

    def activity(self, database: str) -> Activity:
        """Transactions as the database counts them; statements as pg_stat_statements does, which has to be preloaded
        (the embedded server does that) and does not see a COMMIT that was prepared."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("create extension if not exists pg_stat_statements")
            row = connection.execute(
                """
                select coalesce((select xact_commit from pg_stat_database where datname = %s), 0),
                       coalesce(sum(s.calls) filter (where s.query !~* '^(begin|commit|rollback|set|show)'), 0)::bigint,
                       pg_current_wal_lsn() - '0/0'::pg_lsn
                from pg_database d left join pg_stat_statements s on s.dbid = d.oid
                where d.datname = %s
                """,
                (database, database),
            ).fetchone()
        assert row is not None
        return Activity(int(row[0]), int(row[1]), int(row[2]))

    def _refuse_unsafe(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            for name, wanted in DURABLE.items():
                row = connection.execute("select current_setting(%s)", (name,)).fetchone()
                if row is None or row[0] != wanted:
                    raise NotDurable(f"the server runs with {name} = {row and row[0]}; only {wanted} is measured")


@contextmanager
def running(dsn: str | None) -> Generator[Server]:
    """The server at `dsn`, or the project's embedded PostgreSQL in build/bench-pg, stopped afterwards."""
    if dsn is not None:
        yield Server(dsn)
        return
    from holdfast.store import embedded

    started = embedded.start(DIRECTORY)
    try:
        yield Server(started.dsn)
    finally:
        embedded.stop(DIRECTORY)
