"""Work in the database: claim it, free what is lost, fire what is due, ask what is left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from holdfast.store.pins import PIN
from holdfast.store.session import Session, rows
from holdfast.store.statements import SQL
from holdfast.store.wire import read_int

# Where work goes that is not to be run: every worker takes it on, only to say so. A handler's name has no blanks.
TOLD_TO_STOP: Final = "told to stop"
NOT_TO_START: Final = "not to start"
UNRUN_QUEUES: Final = (TOLD_TO_STOP, NOT_TO_START)
MOST_NAMED: Final = 200  # instances in a hint, whose size is limited; with more of them it means all

Call = tuple[bytes, str, int]  # instance, path, fence


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


async def claim_work(session: Session, queues: Sequence[str], limit: int, worker: bytes) -> list[ClaimedWork]:
    results = await session.once(PIN, SQL.claim_work.arrays([queues], limit, worker))
    return [
        ClaimedWork(
            instance, path.decode(), step, read_int(fence), node.decode(), input[1:], read_int(calls), read_int(hop),
            definition, org.decode(), None if trace is None else trace.decode(),
            read_int(version), unrun == b"\1",
        )
        for instance, path, step, fence, node, input, calls, hop, definition, org, trace, version, unrun
        in rows(results[1])
    ]  # fmt: skip


async def reclaim_work(session: Session, limit: int) -> int:
    """Free the work of dead workers and of attempts past their deadline; how many rows."""
    results = await session.once(PIN, SQL.reclaim_work.one(limit))
    return results[1].ntuples


async def fire_timers(session: Session, limit: int) -> int:
    results = await session.once(PIN, SQL.fire_timers.one(limit))
    return results[1].ntuples


async def read_next_due(session: Session) -> float | None:
    """Seconds until the next timer; negative when it is overdue."""
    results = await session.once(PIN, SQL.read_next_due.one())
    value = results[1].get_value(0, 0)
    return None if value is None else read_int(value) / 1_000_000


async def return_claims(session: Session, claims: Sequence[tuple[bytes, str, int]], worker: bytes) -> None:
    """Give back what was claimed but never run: the call does not count."""
    if claims:
        await session.once(PIN, SQL.return_claims.rows([(i, i[15], path, fence) for i, path, fence in claims], worker))


async def list_leased(session: Session, worker: bytes) -> list[tuple[bytes, str, int]]:
    """All work leased to this worker, whether it knows of it or not."""
    results = await session.once(PIN, SQL.list_leased_work.one(worker))
    return [(instance, path.decode(), read_int(fence)) for instance, path, fence in rows(results[1])]


async def find_stopped(session: Session, calls: Sequence[Call], worker: bytes) -> tuple[set[Call], set[Call]]:
    """Which of these calls of this worker are to end, and which are not to begin unless they have."""
    batch = [(instance, instance[15], path, fence) for instance, path, fence in calls]
    results = await session.once(PIN, SQL.find_stopped_work.rows(batch, worker))
    ended, halted = set[Call](), set[Call]()
    for instance, path, fence, may_finish in rows(results[1]):
        (halted if may_finish == b"\1" else ended).add((instance, path.decode(), read_int(fence)))
    return ended, halted


async def has_lost_workers(session: Session) -> bool:
    """Whether a worker ended lately without leaving in order."""
    results = await session.once(PIN, SQL.has_lost_workers.one())
    return results[1].get_value(0, 0) == b"\1"


async def prune_workers(session: Session) -> None:
    await session.once(PIN, SQL.prune_workers.one())


async def is_anything_left(session: Session, queues: Sequence[str], worker: bytes) -> bool:
    """Signals, timers due, or work these queues could do."""
    results = await session.once(PIN, SQL.count_open_work.arrays([queues], worker))
    return any(value == b"\1" for value in rows(results[1])[0])


async def list_unserved(session: Session, most: int) -> list[tuple[str, int, float]]:
    """Queues with free work that no live worker serves: how many steps, up to a limit, and for how many seconds."""
    results = await session.once(PIN, SQL.list_unserved_queues.one(most))
    return [(name.decode(), read_int(steps), read_int(age) / 1000) for name, steps, age in rows(results[1])]


async def count_backlog(session: Session, most: int) -> tuple[int, int, int]:
    """Signals in the queue, effects that wait for delivery, dead letters that are open: each up to a limit."""
    results = await session.once(PIN, SQL.count_backlog.one(most))
    [[signals, effects, letters]] = rows(results[1])
    return read_int(signals), read_int(effects), read_int(letters)


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
    """What `notify_stops` named; none when it means all."""
    return {bytes.fromhex(id) for id in hint.split(",") if id}
