"""A machine as a graph of plain states, which signals move: here nobody has to be told of it."""

from __future__ import annotations

from typing import Any

import psycopg

from holdfast import Engine

CODES = {"submit": 1001, "edit": 1002, "reject": 1003, "approve": 1004, "late": 1010}
VENDOR: dict[str, Any] = {
    "name": "vendor",
    "entry": "draft",
    "policy": {"data": "context"},
    "config": {"environment": "prod", "definition": "vendor", "blueprint": 3, "codes": CODES},
    "nodes": [
        {"id": "draft", "kind": "state"},
        {"id": "review", "kind": "state"},
        {"id": "timed", "kind": "state", "config": {"timeout": {"after": 60.0, "event": "late"}}},
        {"id": "done", "kind": "end"},
    ],
    "edges": [
        {"id": "a", "source": "draft", "target": "review", "on": "submit"},
        {"id": "b", "source": "review", "target": "draft", "on": "reject"},
        {"id": "c", "source": "draft", "target": "draft", "on": "edit"},
        {"id": "d", "source": "review", "target": "done", "on": "approve"},
        {"id": "e", "source": "review", "target": "timed", "on": "wait"},
        {"id": "f", "source": "timed", "target": "draft", "on": "late"},
    ],
}


async def vendor(engine: Engine, ref: str = "V-1") -> str:
    """A vendor in `draft`."""
    await engine.publish(VENDOR)
    instance = await engine.start("vendor", {"name": "Acme"}, business_key=ref)
    await engine.drain(timeout=30)
    return instance.id


async def send(engine: Engine, id: str, *events: str, by: str = "ann") -> None:
    for event in events:
        await engine.signal(id, event, {"sent": event}, by=by)
        await engine.drain(timeout=30)


def watch(dsn: str, id: str, after: float, org: str = "default") -> None:
    """Begin to look whether it stands still, as the statement that makes an instance does."""
    with psycopg.connect(dsn) as db:
        db.execute(
            "insert into holdfast.stale_checks (instance_id, bucket, org_id, after, due_at)"
            " select id, bucket, org_id, %s, created_at + make_interval(secs => %s)"
            " from holdfast.instances where id = %s",
            [after, after, id],
        )


def check_of(dsn: str, id: str) -> tuple[Any, ...] | None:
    with psycopg.connect(dsn) as db:
        return db.execute(
            "select told, step_id, due_at from holdfast.stale_checks where instance_id = %s", [id]
        ).fetchone()


def consumer(dsn: str, name: str, **columns: Any) -> None:
    given = {
        "org_id": "default", "environment": "prod", "name": name, "way": "pull", "takes_transitions": True,
        "takes_hooks": False, "critical": True, "ttl": 30, "max_attempts": 5, "in_flight": 10, **columns,
    }  # fmt: skip
    names = ", ".join(given)
    with psycopg.connect(dsn) as db:
        db.execute(
            f"insert into holdfast.consumers (id, bucket, since, registered_at, updated_at, {names})"
            f" values (gen_random_uuid(), 0, now(), now(), now(), {', '.join(['%s'] * len(given))})",
            list(given.values()),
        )


def open_ack(dsn: str, id: str) -> None:
    """A fact that a consumer has not acknowledged."""
    with psycopg.connect(dsn) as db:
        db.execute(
            "insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq,"
            " ordinal, most) select id, bucket, holdfast.clock(), gen_random_uuid(), gen_random_uuid(), org_id, 1, 0, 5"
            " from holdfast.instances where id = %s",
            [id],
        )


def close_acks(dsn: str) -> None:
    with psycopg.connect(dsn) as db:
        db.execute("update holdfast.ack_consumers set status = 'processed', closed_at = holdfast.clock()")
