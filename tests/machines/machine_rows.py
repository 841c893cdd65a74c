"""Facts and deliveries as commits write them, made by hand: what claims and fillings start from."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

Db = psycopg.Connection[Any]

_INSTANCE = """
    insert into holdfast.instances (id, bucket, org_id, definition_id, flow, flow_version, status, version, state, data,
        input, business_key, created_at, updated_at)
    select %(id)s, get_byte(uuid_send(%(id)s::uuid), 15), 'default', gen_random_uuid(), 'prod.vendor', 1, 'running', 1,
        '{}', '{}', '{}', %(ref)s, holdfast.clock(), holdfast.clock()
    on conflict do nothing
"""
_FACT = """
    insert into holdfast.acks (instance_id, bucket, created_at, id, org_id, environment, definition, external_ref, kind,
        type, mode, state, event, code, step_id, seq, ordinal, needs_ack, starts_at, ends_at, body)
    select %(instance)s, get_byte(uuid_send(%(instance)s::uuid), 15), m.at, %(id)s, 'default', 'prod', %(definition)s,
        %(ref)s, %(kind)s, %(type)s, case %(type)s when 'gate' then 'all' end, %(state)s, %(event)s, %(code)s,
        %(instance)s, %(seq)s, %(ordinal)s, %(needs_ack)s, %(starts)s, %(ends)s,
        jsonb_build_object('ack_guid', %(id)s::uuid, 'external_ref', %(ref)s::text, 'kind', %(kind)s::text, 'instance',
            %(instance)s::uuid, 'environment', 'prod', 'definition', %(definition)s::text, 'version', 1,
            'from', 'New', 'to', %(state)s::text, 'event', %(event)s::text, 'code', 1001, 'lifecycle', %(seq)s::int,
            'actor', 'ann', 'payload', jsonb_build_object('n', %(seq)s::int), 'params', '[]'::jsonb, 'on_success', null,
            'on_failure', null, 'occurred_at', m.at, 'needs_ack', %(needs_ack)s::boolean, 'hook', %(code)s::text)
    from (select coalesce(%(at)s::timestamptz, holdfast.clock()) as at) m
    returning created_at
"""
# As the commit does it, but for the order of instances.
_DELIVERIES = """
    insert into holdfast.ack_consumers (instance_id, bucket, created_at, ack_id, consumer_id, org_id, seq, ordinal,
        starts_at, ends_at, most, next_due)
    select a.instance_id, a.bucket, a.created_at, a.id, c.id, a.org_id, a.seq, a.ordinal, a.starts_at, a.ends_at,
        c.max_attempts,
        case when c.filled_to is null and not exists (
            select from holdfast.ack_consumers o
            where o.instance_id = a.instance_id and o.consumer_id = c.id and o.closed_at is null and o.seq < a.seq
        ) then greatest(a.created_at, a.starts_at) end
    from holdfast.acks a
    join holdfast.consumers c on c.org_id = a.org_id and c.environment = a.environment and c.removed_at is null
    where a.instance_id = %(instance)s and a.id = %(id)s
        and case a.kind when 'hook' then c.takes_hooks and (c.hooks is null or a.code = any(c.hooks))
            else c.takes_transitions end
        and (c.definitions is null or a.definition = any(c.definitions))
        and (c.states is null or a.state = any(c.states)) and (c.events is null or a.event = any(c.events))
"""


def number(what: str, n: int, bucket: int = 7) -> UUID:
    """The nth id of its kind, in the shape of the engine's."""
    return UUID(
        bytes=bytes([1, 0, 0, 0, 0, 0, 0x70, 0, 0x80])
        + hashlib.sha256(f"{what}{n}".encode()).digest()[:6]
        + bytes([bucket])
    )


def add_fact(
    db: Db,
    instance: int,
    seq: int,
    *,
    ordinal: int = 0,
    kind: str = "transition",
    type: str | None = None,
    state: str = "Approved",
    event: str = "approve",
    code: str | None = None,
    definition: str = "vendor",
    needs_ack: bool = True,
    at: datetime | None = None,
    starts: datetime | None = None,
    ends: datetime | None = None,
    delivered: bool = True,
) -> UUID:
    """Write one fact of an instance, and its deliveries, in a commit of its own."""
    id, values = number("fact", 1000 * instance + 10 * seq + ordinal), {"instance": number("instance", instance)}
    with db.transaction():
        db.execute(_INSTANCE, {"id": values["instance"], "ref": f"V-{instance}"})
        db.execute(
            _FACT,
            {
                **values, "id": id, "ref": f"V-{instance}", "kind": kind, "type": type, "state": state, "event": event,
                "code": code, "definition": definition, "seq": seq, "ordinal": ordinal, "needs_ack": needs_ack,
                "at": at, "starts": starts, "ends": ends,
            },
        )  # fmt: skip
        if delivered:
            add_deliveries(db, instance, seq, ordinal)
    return id


def add_deliveries(db: Db, instance: int, seq: int, ordinal: int = 0) -> None:
    id = number("fact", 1000 * instance + 10 * seq + ordinal)
    db.execute(_DELIVERIES, {"instance": number("instance", instance), "id": id})


def close(db: Db, fact: UUID, status: str = "processed") -> None:
    """End a fact's deliveries and make the next ones due, as the commit of an answer does."""
    with db.transaction():
        db.execute(
            "update holdfast.ack_consumers set status = %s, closed_at = holdfast.clock(), next_due = null"
            " where ack_id = %s",
            [status, fact],
        )
        db.execute(
            "update holdfast.ack_consumers t set next_due = greatest(holdfast.clock(), t.starts_at)"
            " from holdfast.consumers c where t.consumer_id = c.id and c.filled_to is null and t.closed_at is null"
            " and t.next_due is null and t.status = 'pending' and t.seq ="
            " (select min(o.seq) from holdfast.ack_consumers o where o.instance_id = t.instance_id"
            " and o.consumer_id = t.consumer_id and o.closed_at is null)"
        )


def told(db: Db, consumer: str) -> list[tuple[Any, ...]]:
    """The deliveries of a consumer: instance's reference, seq, ordinal, status, attempts, whether one is due."""
    return db.execute(
        "select a.external_ref, d.seq, d.ordinal, d.status, d.attempts, d.next_due is not null"
        " from holdfast.ack_consumers d join holdfast.consumers c on c.id = d.consumer_id"
        " join holdfast.acks a on a.instance_id = d.instance_id and a.id = d.ack_id"
        " where c.name = %s order by a.created_at, a.external_ref, d.seq, d.ordinal",
        [consumer],
    ).fetchall()
