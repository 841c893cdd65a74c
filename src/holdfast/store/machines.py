"""Reads of machines: the instance of an external reference, its state, a kept answer."""

from __future__ import annotations

from uuid import UUID

import msgspec

from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.wire import read_int


class Found(msgspec.Struct, frozen=True):
    """The instance a trigger means, if there is one, and how many instances its reference has had."""

    id: bytes | None
    together: int


class MachineInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance of a machine: its state, its last event, its open gates."""

    id: str
    environment: str
    definition: str
    external_ref: str
    flow_version: int
    status: str
    reason: str | None
    state: str | None
    lifecycle: int  # the number of the entry it is at
    last_event: str | None
    data: object
    blocked_by: list[str]  # hooks of the gates that are open
    open_acks: int


async def find_machine_instance(
    session: Session,
    org: str,
    flow: str,
    ref: str,
    request: str | None,
    key: str,
    *,
    only_key: bool = False,
    also_over: bool = False,
) -> Found:
    """Find the instance that knows the request, else the open one, else the newest of the blueprint (`key`).

    `only_key`: no open one of another blueprint will do. `also_over`: one that is over will, of any blueprint.
    """
    query = SQL.find_machine_instance.one(org, flow, ref, request, key, only_key, also_over)
    results = await session.once(SQL.use_worker.one(), query)
    [(id, together)] = rows(results[1])
    return Found(id, read_int(together))


async def find_blueprint(session: Session, org: str, flow: str, blueprint: int) -> int | None:
    """The newest effective version of a blueprint."""
    results = await session.once(SQL.use_worker.one(), SQL.find_blueprint.one(org, flow, blueprint))
    return next((read_int(version) for (version,) in rows(results[1])), None)


async def read_machine_instance(session: Session, org: str, id: bytes) -> MachineInstance | None:
    results = await session.once(SQL.use_tenant.one(org), SQL.read_machine_instance.one(id, id[15], org))
    for flow, version, status, reason, ref, data, state, number, event, gates, acks in rows(results[1]):
        environment, _, definition = flow.decode().partition(".")
        return MachineInstance(
            id=str(UUID(bytes=id)),
            environment=environment,
            definition=definition,
            external_ref=ref.decode(),
            flow_version=read_int(version),
            status=status.decode(),
            reason=None if reason is None else reason.decode(),
            state=None if state is None else state.decode(),
            lifecycle=read_int(number),
            last_event=None if event is None else event.decode(),
            data=msgspec.json.decode(data[1:]),
            blocked_by=msgspec.json.decode(gates[1:]),
            open_acks=read_int(acks),
        )
    return None


async def list_machine_names(session: Session, org: str, definition: str) -> list[str]:
    """The names of the machines of a definition, one per environment."""
    results = await session.once(SQL.use_worker.one(), SQL.list_machine_names.one(org, definition))
    return [name.decode() for (name,) in rows(results[1])]


async def read_answer(session: Session, org: str, instance: bytes, key: str) -> bytes | None:
    """The answer that a trigger got under its request id."""
    query = SQL.read_answer.one(instance, instance[15], key, org)
    results = await session.once(SQL.use_worker.one(), query)
    for (answer,) in rows(results[1]):
        return None if answer is None else answer[1:]
    return None
