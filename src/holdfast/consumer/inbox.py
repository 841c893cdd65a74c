"""Inbox: a table in the consumer's own database, to act on each fact once although it may come twice.

    with connection.transaction():
        if inbox.is_new(connection, event.ack):
            connection.execute("insert into invoices …")

The row is part of the consumer's own transaction: work and memory of it are committed together. The helpers take any
connection with psycopg's `execute`, blocking or not.
"""

from __future__ import annotations

from typing import Any, Final

TABLE: Final = """create table if not exists holdfast_inbox (
    ack text primary key,
    seen_at timestamptz not null default now()
)"""
_REMEMBER: Final = "insert into holdfast_inbox (ack) values (%s) on conflict do nothing"
_FORGET: Final = "delete from holdfast_inbox where seen_at < now() - make_interval(days => %s)"


def create(connection: Any) -> Any:
    """Create the table unless it is there."""
    return connection.execute(TABLE)


def is_new(connection: Any, ack: str) -> bool:
    """Remember a fact in the caller's transaction; False when it has been seen."""
    return connection.execute(_REMEMBER, [ack]).rowcount == 1


async def is_new_async(connection: Any, ack: str) -> bool:
    """Remember a fact, on an asynchronous connection; False when it has been seen."""
    return (await connection.execute(_REMEMBER, [ack])).rowcount == 1


def forget(connection: Any, days: int = 90) -> Any:
    """Delete the memory of facts seen so long ago that they do not come again."""
    return connection.execute(_FORGET, [days])
