"""A machine to try things on: orders that are checked, packed and shipped, with a rule for each step of the way."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg

from holdfast import Engine, Machine
from holdfast.core.model.ack_handles import AckAddress, encode_ack
from holdfast.core.model.timestamps import from_datetime

BLUEPRINT: dict[str, Any] = {
    "name": "order",
    "environment": "prod",
    "version": 1,
    "states": [
        {"name": "New", "is_initial": True},
        {"name": "Checked"},
        {"name": "Packed"},
        {"name": "Shipped", "is_final": True},
    ],
    "events": [
        {"code": 1001, "name": "Check"},
        {"code": 1002, "name": "Pack"},
        {"code": 1003, "name": "Ship"},
        {"code": 1004, "name": "Back"},
        {"code": 1005, "name": "Remind"},
    ],
    "transitions": [
        {"from": "New", "event": 1001, "to": "Checked"},
        {"from": "Checked", "event": 1002, "to": "Packed"},
        {"from": "Checked", "event": 1004, "to": "New"},
        {"from": "Checked", "event": 1005, "to": "Checked"},
        {"from": "Packed", "event": 1003, "to": "Shipped"},
        {"from": "Packed", "event": 1004, "to": "Checked"},
    ],
}
GATES: dict[str, Any] = {
    "policy_name": "gates",
    "for": {"definition": "order", "version": 1},
    "params": [{"code": "LIMITS", "data": {"most": 5}}],
    "rules": [
        {
            "state": "Checked",
            "via": 1001,
            "params": ["LIMITS"],
            "complete": {"success": 1002, "failure": 1004},
            "emit": [
                {"event": "CHECK.CREDIT", "order": 1},
                {"event": "CHECK.STOCK", "order": 2, "ack": "any"},
            ],
        }
    ],
}


async def office(
    engine: Engine, policy: dict[str, Any] | None = None, *, consumers: tuple[str, ...] = ("ledger",)
) -> None:
    """Import the machine and register consumers of everything."""
    await engine.import_machine(Machine.load(BLUEPRINT, policy))
    for name in consumers:
        register(engine.dsn, name)


def register(dsn: str, name: str, **columns: Any) -> uuid.UUID:
    """A consumer as its row: what it takes, and how often it is tried."""
    id = uuid.uuid4()
    given = {
        "id": id, "bucket": id.bytes[15], "org_id": "default", "environment": "prod", "name": name, "way": "pull",
        "takes_transitions": True, "takes_hooks": True, "critical": True, "ttl": 30, "max_attempts": 3, "in_flight": 10,
        **columns,
    }  # fmt: skip
    with psycopg.connect(dsn) as db:
        db.execute(
            f"insert into holdfast.consumers (since, registered_at, updated_at, {', '.join(given)})"
            f" values (now(), now(), now(), {', '.join(['%s'] * len(given))})",
            list(given.values()),
        )
    return id


class Delivery:
    """One fact of one consumer, as its row is."""

    def __init__(self, row: tuple[Any, ...]) -> None:
        instance, at, id, self.consumer, self.kind, self.code, self.status, due, closed, self.body, self.most = row
        self.ack = encode_ack(AckAddress(instance.bytes, from_datetime(at), id.bytes))
        self.guid = str(id)
        self.is_due, self.is_closed = due is not None, closed is not None

    @property
    def what(self) -> str:
        return self.code or (f"→ {self.body['to']}" if self.kind == "transition" else self.kind)


def deliveries(dsn: str, consumer: str = "ledger", ref: str | None = None) -> list[Delivery]:
    with psycopg.connect(dsn) as db:
        rows = db.execute(
            "select a.instance_id, a.created_at, a.id, c.name, a.kind, a.code, d.status, d.next_due, d.closed_at,"
            " a.body, d.most from holdfast.acks a"
            " join holdfast.ack_consumers d on d.ack_id = a.id and d.instance_id = a.instance_id"
            " join holdfast.consumers c on c.id = d.consumer_id"
            " where c.name = %(name)s and (%(ref)s::text is null or a.external_ref = %(ref)s)"
            " order by a.instance_id, a.seq, a.ordinal",
            {"name": consumer, "ref": ref},
        ).fetchall()
    return [Delivery(row) for row in rows]


def due(dsn: str, consumer: str = "ledger", ref: str | None = None) -> list[str]:
    """What would be sent now."""
    return [one.what for one in deliveries(dsn, consumer, ref) if one.is_due]


async def answer(
    engine: Engine, what: str, outcome: str = "processed", *, consumer: str = "ledger", **more: Any
) -> Any:
    """Answer the one open fact of that name."""
    [one] = [d for d in deliveries(engine.dsn, consumer) if d.what == what and not d.is_closed]
    return await engine.ack("prod", consumer, one.ack, outcome, **more)


def rows(dsn: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as db:
        return db.execute(query, values).fetchall()
