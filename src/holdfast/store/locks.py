"""The first flush of a commit: lock the instances, see which snapshots are new, and read the database's time once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.core.snapshot import is_complete, read_state
from holdfast.core.state import EMPTY, Instance
from holdfast.core.status import InstanceStatus
from holdfast.errors import HoldfastError
from holdfast.store.pins import pin
from holdfast.store.session import BEGIN, Session, rows
from holdfast.store.statements import SQL, Query
from holdfast.store.undos import complete, undos_query
from holdfast.store.wire import read_int

SIGNALS_PER_INSTANCE = 32
CLOCK = SQL.read_clock.one()


class QueuedSignal(msgspec.Struct, frozen=True, gc=False):
    """A row of `signals`, as it lies in the queue."""

    instance: bytes
    id: bytes
    kind: str
    payload: bytes
    attempts: int
    trace: str | None


class Locked(msgspec.Struct, gc=False):
    now: int
    instances: dict[bytes, Instance]
    inputs: dict[bytes, bytes]  # of instances that have not been decided upon yet
    signals: list[QueuedSignal]
    claimed: int  # instances the claim found
    unreadable: dict[bytes, HoldfastError] = {}  # locked, but their snapshots make no sense to this release
    has_more: bool = False  # the queue may hold more signals than were read
    asked_at: float = 0.0  # when, by the clock of this process, the one of the database was asked


async def lock(
    session: Session,
    known: Sequence[tuple[bytes, Instance | None]],
    claim: int,
    signals: int = SIGNALS_PER_INSTANCE,
    first: Sequence[Query] = (),
) -> Locked:
    """Lock what the batch is about and up to `claim` instances with ready signals. Never waits for a lock.

    `first` is the end of the transaction before, in the same flush.
    """
    queries = [BEGIN, pin(session)]
    asked_at = time.monotonic()
    if known:
        ordered = sorted(known, key=lambda k: k[0])
        queries.append(SQL.lock_instances.rows([(i, i[15], -1 if c is None else c.version) for i, c in ordered]))
    if claim:
        queries.append(SQL.claim_instances.one(claim))
    results = (await session.run([*first, *queries, CLOCK]))[len(first) :]
    cache = dict(known)
    locked = Locked(read_int(results[-1].get_value(0, 0) or b""), {}, {}, [], 0, asked_at=asked_at)
    if known:
        for row in rows(results[2]):
            cached = cache[row[0]]
            if row[8] is None and cached is not None:
                locked.instances[row[0]] = cached
            else:
                _take(locked, row)
    if claim:
        found = rows(results[-2])
        locked.claimed = len(found)
        for row in found:
            if row[0] not in locked.instances:
                _take(locked, row)
    await _read_rest(session, locked, bool(claim), signals)
    locked.has_more = claim > 0 and (locked.claimed >= claim or _is_crowded(locked, signals))
    return locked


async def claim_one(session: Session) -> QueuedSignal | None:
    """The oldest ready signal, its instance locked but not read; the transaction stays open."""
    results = await session.run([BEGIN, pin(session), SQL.claim_instances.one(1)])
    claimed = Locked(0, {}, {row[0]: b"" for row in rows(results[2])}, [], 0)
    await _read_rest(session, claimed, False, 1)
    return claimed.signals[0] if claimed.signals else None


async def _read_rest(session: Session, locked: Locked, claimed: bool, most: int) -> None:
    """In a later statement than the lock: one that waited or skipped would not see rows committed with the version."""
    wanted = [*locked.instances, *locked.unreadable] if claimed and locked.claimed else list(locked.inputs)
    rolling_back = [i for i, instance in locked.instances.items() if not is_complete(instance.state)]
    queries: list[Query] = []
    if wanted:
        queries.append(SQL.read_signals.rows([(i, i[15]) for i in wanted], most))
    if rolling_back:
        queries.append(undos_query(locked.instances[i] for i in rolling_back))
    if not queries:
        return
    results = await session.run(queries)
    if rolling_back:
        locked.unreadable |= complete(locked.instances, rolling_back, results[-1])
    if wanted:
        _take_signals(locked, rows(results[0]))


def _take_signals(locked: Locked, found: Sequence[Sequence[Any]]) -> None:
    for instance, id, kind, payload, attempts, trace in found:
        locked.signals.append(
            QueuedSignal(instance, id, kind.decode(), payload[1:], read_int(attempts), trace and trace.decode())
        )


def _is_crowded(locked: Locked, most: int) -> bool:
    """An instance has at least as many signals as are read of one."""
    if len(locked.signals) < most:
        return False
    return max(Counter(signal.instance for signal in locked.signals).values()) >= most


def _take(locked: Locked, row: Sequence[Any]) -> None:
    try:
        instance = load_instance(row)
    except HoldfastError as failure:
        locked.unreadable[row[0]] = failure
        return
    locked.instances[instance.id] = instance
    if row[14] is not None:
        locked.inputs[instance.id] = row[14][1:]


def load_instance(row: Sequence[Any]) -> Instance:
    id, version, org, definition, flow, flow_version, status, reason, state, data, entity, parent, token, trace = row[
        :14
    ]
    decided = read_int(version)
    return Instance(
        id,
        org.decode(),
        definition,
        flow.decode(),
        read_int(flow_version),
        decided,
        InstanceStatus(status.decode()),
        read_state(state[1:]) if decided else EMPTY,
        data[1:],
        None if reason is None else reason.decode(),
        read_int(entity),
        parent,
        None if token is None else token.decode(),
        None if trace is None else trace.decode(),
        read_int(row[15]),
        *(None if said is None else said.decode() for said in row[16:19]),
    )
