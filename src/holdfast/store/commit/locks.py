"""The first flush of a commit: lock the instances, load snapshots newer than the cache, read the database's clock."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core.model.snapshot import completed, is_complete, read_state
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.core.rollback.pending import LARGEST, Undo, Undos, undo_of
from holdfast.errors import HoldfastError
from holdfast.store.pg.session import BEGIN, Session, rows
from holdfast.store.pg.statements import SQL, Query
from holdfast.store.pg.transaction import pin
from holdfast.store.pg.wire import read_int

SIGNALS_PER_INSTANCE = 32
_EVER: Final = 0  # before any step
MOMENT: Final = 1_000_000  # microseconds by which the date of a commit may be ahead of the clock for another's sake
CLOCK = SQL.read_clock.one()


class QueuedSignal(msgspec.Struct, frozen=True, gc=False):
    """A row of `signals`, undecoded."""

    instance: bytes
    id: bytes
    kind: str
    payload: bytes
    attempts: int
    trace: str | None


class Locked(msgspec.Struct, gc=False):
    now: int  # the date of the commit
    instances: dict[bytes, Instance]
    inputs: dict[bytes, bytes]  # of instances that have not been decided upon yet
    signals: list[QueuedSignal]
    claimed: int  # instances the claim found
    unreadable: dict[bytes, HoldfastError] = {}  # locked, but their snapshots make no sense to this release
    has_more: bool = False  # the queue may hold more signals than were read
    asked_at: float = 0.0  # this process's clock, before the database's clock was read
    answered_at: float = 0.0  # this process's clock, after it
    clock: int = 0  # the database's clock
    ahead: dict[bytes, int] = {}  # dates of instances whose last commit is more than MOMENT ahead of the clock

    def date_of(self, instance: bytes) -> int:
        return self.ahead.get(instance, self.now) if self.ahead else self.now


async def lock(
    session: Session,
    known: Sequence[tuple[bytes, Instance | None]],
    claim: int,
    signals: int = SIGNALS_PER_INSTANCE,
    first: Sequence[Query] = (),
    *,
    begun: bool = False,
) -> Locked:
    """Lock the instances of the batch and up to `claim` others with ready signals, without waiting for a lock.

    `first` ends the transaction before, in the same flush. `begun`: this one was begun already.
    """
    queries = [] if begun else [BEGIN, pin(session)]
    at = len(queries)
    asked_at = time.monotonic()
    if known:
        ordered = sorted(known, key=lambda k: k[0])
        queries.append(SQL.lock_instances.rows([(i, i[15], -1 if c is None else c.version) for i, c in ordered]))
    if claim:
        queries.append(SQL.claim_instances.one(claim))
    results = (await session.run([*first, *queries, CLOCK]))[len(first) :]
    cache, clock = dict(known), read_int(results[-1].get_value(0, 0) or b"")
    locked = Locked(clock, {}, {}, [], 0, asked_at=asked_at, answered_at=time.monotonic(), clock=clock)
    if known:
        for row in rows(results[at]):
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
    locked.now, locked.ahead = dates(clock, locked.instances.values())
    await _read_rest(session, locked, bool(claim), signals)
    locked.has_more = claim > 0 and (locked.claimed >= claim or _is_crowded(locked, signals))
    return locked


def dates(clock: int, instances: Iterable[Instance]) -> tuple[int, dict[bytes, int]]:
    """Date a commit, and its instances that need a date of their own: no change is dated before the last one.

    A commit never waits for a clock, so an instance that is at most MOMENT ahead dates the others of its batch too. An
    instance further ahead, because the database's clock was set back, shares its date only with those about as far.
    """
    now, near = clock, clock + MOMENT
    far: list[Instance] = []
    for instance in instances:
        if instance.updated > now:
            if instance.updated <= near:
                now = instance.updated
            else:
                far.append(instance)
    return now, _group(far) if far else {}


def _group(far: list[Instance]) -> dict[bytes, int]:
    """Give instances within MOMENT of each other one date: that of the latest."""
    grouped: dict[bytes, int] = {}
    date = 0
    for instance in sorted(far, key=lambda i: i.updated, reverse=True):
        if not instance.updated <= date <= instance.updated + MOMENT:
            date = instance.updated
        grouped[instance.id] = date
    return grouped


async def claim_one(session: Session) -> QueuedSignal | None:
    """Claim the oldest ready signal and lock its instance without reading it; the transaction stays open."""
    results = await session.run([BEGIN, pin(session), SQL.claim_instances.one(1)])
    claimed = Locked(0, {}, {row[0]: b"" for row in rows(results[2])}, [], 0)
    await _read_rest(session, claimed, False, 1)
    return claimed.signals[0] if claimed.signals else None


async def _read_rest(session: Session, locked: Locked, claimed: bool, most: int) -> None:
    """Read signals and compensations after the lock: its own statement may miss rows committed with the version."""
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
    """Check whether an instance has as many signals as are read of one, so that it may have more."""
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
    created, *request, updated = row[15:20]
    starter, partition, correlation = (None if said is None else said.decode() for said in request)
    return Instance(
        id=id,
        org=org.decode(),
        definition=definition,
        flow=flow.decode(),
        flow_version=read_int(flow_version),
        version=decided,
        status=InstanceStatus(status.decode()),
        state=read_state(state[1:]) if decided else EMPTY,
        data=data[1:],
        reason=None if reason is None else reason.decode(),
        entity_version=read_int(entity),
        parent=parent,
        parent_token=None if token is None else token.decode(),
        trace=None if trace is None else trace.decode(),
        created=read_int(created),
        starter=starter,
        partition=partition,
        correlation=correlation,
        updated=read_int(updated),
    )


# --- compensations that a rollback has still to run ---------------------------------------------------------------
# A process that has not planned them reads their rows and inputs, and continues the rollback as the planner would.


def undos_query(instances: Iterable[Instance]) -> Query:
    return SQL.read_undos.rows([(i.id, i.bucket, _planned_at(i)) for i in instances], LARGEST)


def _planned_at(instance: Instance) -> int:
    """The time at which the plan opened its compensations, from the running one; `_EVER` between two."""
    return min((token.at for token in instance.state.tokens.values()), default=_EVER)


def complete(instances: dict[bytes, Instance], ids: Iterable[bytes], result: Any) -> dict[bytes, HoldfastError]:
    """Complete these instances with the compensations read; remove and return those whose snapshots contradict them."""
    undos: dict[bytes, list[Undo]] = {id: [] for id in ids}
    inputs: dict[bytes, list[bytes | None]] = {id: [] for id in undos}
    for instance, node, path, hop, id, at, fence, run, detail, input in rows(result):
        hop, at, fence, run = map(read_int, (hop, at, fence, run))
        undos[instance].append(undo_of(node.decode(), path.decode(), hop, id, at, fence, run, detail[1:]))
        inputs[instance].append(None if input is None else input[1:])
    unreadable: dict[bytes, HoldfastError] = {}
    for id, found in undos.items():
        try:
            instances[id] = completed(instances[id], Undos(found, inputs[id]))
        except HoldfastError as failure:
            del instances[id]
            unreadable[id] = failure
    return unreadable
