"""Rows to write in the tests of the schema: legal unless a test changes a column."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

NOW = datetime.datetime.now(datetime.UTC)

Row = dict[str, Any]


def insert(db: psycopg.Connection[Any], table: str, row: Row) -> Row:
    db.execute(
        sql.SQL("insert into holdfast.{} ({}) values ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join(map(sql.Placeholder, row)),
        ),
        row,
    )
    return row


def update(db: psycopg.Connection[Any], table: str, row: Row, **changes: Any) -> int:
    """Update the row that has this `id`; answers how many rows that were."""
    assignments = [sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in changes]
    return db.execute(
        sql.SQL("update holdfast.{} set {} where id = {}").format(
            sql.Identifier(table), sql.SQL(", ").join(assignments), sql.Placeholder("row_id")
        ),
        {**changes, "row_id": row["id"]},
    ).rowcount


def definition(**changes: Any) -> Row:
    row = {
        "id": uuid.uuid4(),
        "org_id": "acme",
        "kind": "saga",
        "name": "order",
        "version": 1,
        "status": "published",
        "nodes": Jsonb([]),
        "edges": Jsonb([]),
        "compiled": Jsonb({}),
        "hash": "0" * 64,
        "compiler_version": "1",
        "created_at": NOW,
        "published_at": NOW,
    }
    return row | changes


def instance(bucket: int = 7, **changes: Any) -> Row:
    row = {
        "id": uuid.UUID(bytes=uuid.uuid4().bytes[:15] + bytes([bucket])),
        "bucket": bucket,
        "org_id": "acme",
        "definition_id": uuid.uuid4(),
        "flow": "order",
        "flow_version": 1,
        "status": "running",
        "version": 1,
        "state": Jsonb({}),
        "data": Jsonb({}),
        "input": Jsonb({"amount": 5}),
        "created_at": NOW,
        "updated_at": NOW,
    }
    return row | changes


def step(**changes: Any) -> Row:
    row = {
        "instance_id": uuid.uuid4(),
        "bucket": 7,
        "created_at": NOW,
        "id": uuid.uuid4(),
        "org_id": "acme",
        "node": "reserve",
        "behaviour": "work",
        "path": "0",
        "hop": 1,
        "kind": "forward",
        "run": 1,
        "entity_version": 0,
        "receipt_key": b"key",
        "opened_version": 1,
        "opened_ordinal": 0,
        "cause": "started",
        "status": "running",
        "input": Jsonb({"amount": 5}),
    }
    return row | changes


def effect(**changes: Any) -> Row:
    row = {
        "instance_id": uuid.uuid4(),
        "bucket": 7,
        "created_at": NOW,
        "id": uuid.uuid4(),
        "org_id": "acme",
        "step_id": uuid.uuid4(),
        "step_created_at": NOW,
        "token": "0@1",
        "effect_type": "webhook",
        "payload": Jsonb({}),
        "key": "key",
        "awaited": False,
        "max_attempts": 5,
        "next_attempt_at": NOW,
    }
    return row | changes


def event(**changes: Any) -> Row:
    row = {
        "instance_id": uuid.uuid4(),
        "bucket": 7,
        "created_at": NOW,
        "version": 1,
        "ordinal": 0,
        "org_id": "acme",
        "type": "started",
    }
    return row | changes


def receipt(**changes: Any) -> Row:
    row = {
        "instance_id": uuid.uuid4(),
        "token": "0@1",
        "kind": "forward",
        "run": 1,
        "bucket": 7,
        "org_id": "acme",
        "key": b"key",
        "step_id": uuid.uuid4(),
        "created_at": NOW,
    }
    return row | changes


def dead_letter(**changes: Any) -> Row:
    row = {
        "id": uuid.uuid4(),
        "bucket": 7,
        "org_id": "acme",
        "instance_id": uuid.uuid4(),
        "flow": "order",
        "source": "signal",
        "envelope": Jsonb({"kind": "event"}),
        "reason": "DECIDE_FAILED",
        "created_at": NOW,
    }
    return row | changes
