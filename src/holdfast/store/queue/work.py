"""Work in the database: claim it, free lost work, fire due timers, count the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.errors import HoldfastError
from holdfast.payloads import canonical
from holdfast.settings import FASTEST_AGING
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.pg.wire import read_int

# Where work goes that is not to be run: every worker takes it on, only to say so. A handler's name has no blanks.
TOLD_TO_STOP: Final = "told to stop"
NOT_TO_START: Final = "not to start"
PAUSED: Final = ""  # unserved: work of a suspended instance waits here for the resume
UNRUN_QUEUES: Final = (TOLD_TO_STOP, NOT_TO_START)
MOST_NAMED: Final = 200  # instances in a hint, whose size is limited; with more of them it means all

AGING: Final = 0.5  # points of priority a waiting step gains per second, unless an option says otherwise
CENTURY: Final = 36_525 * 86_400 * 1_000_000

Call = tuple[bytes, str, int]  # instance, path, fence


def weight_of_a_point(aging: float | None) -> int:
    """Microseconds of waiting that outweigh one point of priority; without aging more than anything ever waits."""
    if aging is not None and not 0 <= aging <= FASTEST_AGING:
        raise HoldfastError(
            f"Aging by {aging} points per second is not possible.",
            code="SETTING_INVALID",
            hint=f"Use 0 to {FASTEST_AGING}; 0 or None means strict priority.",
        )
    return min(round(1_000_000 / aging), CENTURY) if aging else CENTURY


POINT: Final = weight_of_a_point(AGING)


def ripe_at(now: int, priority: int, point: int = POINT) -> int:
    """Order of the queue: a step of low priority is as if it were enqueued later, so it ages instead of starving."""
    return now + (100 - priority) * point


class ClaimedWork(msgspec.Struct, frozen=True, gc=False):
    """A step leased to this worker, with all a handler's call needs."""

    instance: bytes
    path: str
    step: bytes
    fence: int
    node: str
    input: bytes
    calls: int
    hop: int
    definition: bytes
    org: str
    trace: str | None
    version: int  # of the instance
    unrun: bool = False  # it was stopped before it could be claimed


class Takeover(msgspec.Struct, frozen=True, gc=False):
    """A step whose worker is lost, or whose attempt has run out of time."""

    instance: bytes
    flow: str
    step: str
    org: str
    calls: int


async def claim_work(session: Session, queues: Sequence[str], limit: int, worker: bytes) -> list[ClaimedWork]:
    results = await session.once(PIN, SQL.claim_work.arrays([queues], limit, worker))
    return [
        ClaimedWork(
            instance=instance,
            path=path.decode(),
            step=step,
            fence=read_int(fence),
            node=node.decode(),
            input=input[1:],
            calls=read_int(calls),
            hop=read_int(hop),
            definition=definition,
            org=org.decode(),
            trace=None if trace is None else trace.decode(),
            version=read_int(version),
            unrun=unrun == b"\1",
        )
        for instance, path, step, fence, node, input, calls, hop, definition, org, trace, version, unrun in rows(
            results[1]
        )
    ]


async def reclaim_work(session: Session, limit: int) -> tuple[int, list[Takeover]]:
    """Free the work of dead workers, of attempts past their deadline, and parked work that is due.

    Returns the number of rows, and those of them that are takeovers.
    """
    results = await session.once(PIN, SQL.reclaim_work.one(limit))
    found = rows(results[1])
    return len(found), [
        Takeover(instance, flow.decode(), node.decode(), org.decode(), read_int(calls))
        for instance, flow, node, org, calls, is_parked in found
        if is_parked != b"\1"
    ]


async def fire_timers(session: Session, limit: int) -> int:
    results = await session.once(PIN, SQL.fire_timers.one(limit))
    return results[1].ntuples


class Dues(NamedTuple):
    """Seconds until the next timer or parked work, and until the next look for stale instances."""

    timer: float | None
    stale: float | None


async def read_dues(session: Session) -> Dues:
    """Read when something is due next; negative when it is overdue."""
    results = await session.once(PIN, SQL.read_next_due.one())
    [(timer, stale)] = rows(results[1])
    return Dues(_seconds(timer), _seconds(stale))


async def read_next_due(session: Session) -> float | None:
    """Seconds until the next timer; negative when it is overdue."""
    return (await read_dues(session)).timer


def _seconds(value: bytes | None) -> float | None:
    return None if value is None else read_int(value) / 1_000_000


async def return_claims(session: Session, claims: Sequence[tuple[bytes, str, int]], worker: bytes) -> None:
    """Return claimed work that never ran: the call does not count."""
    if claims:
        await session.once(PIN, SQL.return_claims.rows([(i, i[15], path, fence) for i, path, fence in claims], worker))


async def list_leased(session: Session, worker: bytes) -> list[tuple[bytes, str, int]]:
    """All work leased to this worker, whether it knows of it or not."""
    results = await session.once(PIN, SQL.list_leased_work.one(worker))
    return [(instance, path.decode(), read_int(fence)) for instance, path, fence in rows(results[1])]


class Stopped(NamedTuple):
    """Calls that are to end, that are not to begin unless they have, and that are to begin later."""

    ended: set[Call]
    halted: set[Call]
    paused: set[Call]


async def find_stopped(session: Session, calls: Sequence[Call], worker: bytes) -> Stopped:
    """Find which of this worker's calls have to stop, for good or because of a pause."""
    batch = [(instance, instance[15], path, fence) for instance, path, fence in calls]
    results = await session.once(PIN, SQL.find_stopped_work.rows(batch, worker))
    found = Stopped(set(), set(), set())
    for instance, path, fence, target in rows(results[1]):
        call = instance, path.decode(), read_int(fence)
        if target == PAUSED.encode():
            found.paused.add(call)
        else:
            (found.halted if target == NOT_TO_START.encode() else found.ended).add(call)
    return found


async def has_lost_workers(session: Session) -> bool:
    """Check whether a worker ended lately without leaving in order."""
    results = await session.once(PIN, SQL.has_lost_workers.one())
    return results[1].get_value(0, 0) == b"\1"


async def list_rivals(session: Session, origins: Mapping[str, str]) -> list[tuple[str, str, str, int]]:
    """Live workers that offer one of these handlers from elsewhere: name, origin, host, pid."""
    results = await session.once(PIN, SQL.list_rival_handlers.one(canonical(dict(origins))))
    return [
        (name.decode(), origin.decode(), host.decode(), read_int(pid)) for name, origin, host, pid in rows(results[1])
    ]


async def prune_workers(session: Session) -> None:
    await session.once(PIN, SQL.prune_workers.one())


async def is_anything_left(session: Session, queues: Sequence[str], worker: bytes, *, stale: bool = True) -> bool:
    """Signals, timers due, work these queues could do, or (`stale`) a look for stale instances."""
    results = await session.once(PIN, SQL.count_open_work.arrays([queues], worker))
    [found] = rows(results[1])
    return any(value == b"\1" for value in (found if stale else found[:-1]))


async def list_unserved(session: Session, most: int) -> list[tuple[str, int, float]]:
    """Queues with free work that no live worker serves: how many steps, up to a limit, and for how many seconds."""
    results = await session.once(PIN, SQL.list_unserved_queues.one(most))
    return [(name.decode(), read_int(steps), read_int(age) / 1000) for name, steps, age in rows(results[1])]


class Waiting(NamedTuple):
    """The backlog of the whole installation, each figure counted up to a limit."""

    signals: int  # in the queue
    effects: int  # for their next delivery
    letters: int  # dead ones, for an answer
    suspended: int  # instances, for a resume
    dlq: int  # instances, for the answers to their dead letters


async def count_backlog(session: Session, most: int) -> Waiting:
    results = await session.once(PIN, SQL.count_backlog.one(most))
    [counts] = rows(results[1])
    return Waiting(*map(read_int, counts))


async def note_missing(
    session: Session, queues: Sequence[str], most: int, cooldown: float, jitter: float, longest: float
) -> int:
    """Mark the steps that wait there, and tell it on their instances when its time has come; how many rows."""
    results = await session.once(PIN, SQL.note_missing_handlers.arrays([queues], most, cooldown, jitter, longest))
    return read_int(results[1].get_value(0, 0) or b"")


async def notify_workers(session: Session) -> None:
    await session.once(SQL.notify_workers.one())


async def notify_stops(session: Session, instances: Collection[bytes]) -> None:
    named = ",".join(id.hex() for id in instances) if len(instances) <= MOST_NAMED else ""
    await session.once(SQL.notify_stops.one(named))


def instances_hinted(hint: str) -> set[bytes]:
    """The instances named by `notify_stops`; an empty set stands for all."""
    return {bytes.fromhex(id) for id in hint.split(",") if id}


async def park_work(session: Session, claims: Sequence[tuple[bytes, str, int, float]], worker: bytes) -> None:
    """(instance, path, fence, seconds): given back as if never claimed, and free for all when the seconds are over."""
    parked = [(instance, instance[15], path, fence, seconds) for instance, path, fence, seconds in claims]
    await session.once(PIN, SQL.park_work.rows(parked, worker))
