"""A question to every server connection of a pool."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import psycopg
from pools import Pooled

# What PgBouncer keeps per client and sets anew for each.
KEPT_BY_POOLERS = {"client_encoding", "DateStyle", "TimeZone", "standard_conforming_strings", "application_name"}


def on_every_server(pooled: Pooled, question: str) -> dict[int, Any]:
    """The answers by process id; as many transactions as the pool has connections are open at once."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(psycopg.connect(pooled.dsn, prepare_threshold=None)) for _ in range(pooled.size)
        ]
        pids = [_value(connection, "select pg_backend_pid()") for connection in connections]
        return {pid: _value(connection, question) for pid, connection in zip(pids, connections, strict=True)}


def left_behind(pooled: Pooled) -> list[str]:
    """What a client might inherit on some server: statements, channels, locks, a role, settings."""
    found: list[str] = []
    for question in (
        "select string_agg('statement ' || name, ',') from pg_prepared_statements",
        "select string_agg('channel ' || channel, ',') from pg_listening_channels() channel",
        "select string_agg('advisory lock', ',') from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        "select 'role ' || current_user where current_user <> session_user",
        "select 'organisation ' || nullif(current_setting('holdfast.org', true), '')",
        "select string_agg(name, ',') from pg_settings where source = 'session' and setting <> reset_val",
    ):
        for answer in on_every_server(pooled, question).values():
            found += [word for word in (answer or "").split(",") if word and word not in KEPT_BY_POOLERS]
    return found


def _value(connection: psycopg.Connection[Any], question: str) -> Any:
    row = connection.execute(question.encode()).fetchone()
    return None if row is None else row[0]
