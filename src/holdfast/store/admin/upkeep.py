"""Upkeep of the database, task by task: partitions, expiry, retention.

There is no leader. A runner takes a due task by moving its due time, works through small transactions that skip locked
rows, and sets the next due time. A runner that dies leaves nothing behind but a due time; two at once only find less
to do. A pass over instances saves its position, so an interrupted pass continues where it stopped.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, Final

import msgspec
import psycopg

from holdfast.errors import StoreError
from holdfast.store.admin import carry
from holdfast.store.admin.connection import MAINTENANCE, WORKER, Desk, NotPermitted

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
BATCH: Final = 500
FOLDED: Final = 5_000  # commits whose counts are added to the sums at once
CLAIM_SECONDS: Final = 600.0  # how long a runner may be silent before another tries
GO_ON_AFTER: Final = 30.0  # a task whose time was up goes on after this
RETRY_AFTER: Final = 300.0
DEAD_ROWS: Final = 5_000  # in a queue: the server's own vacuum would come for them, but only when its nap is over
LOCK_TRIES: Final = 8
LOCK_PAUSE: Final = 0.25

Keep = Mapping[str, float]  # retention in seconds, by name; an unnamed one is for ever


class Upkeep(msgspec.Struct, frozen=True):
    """Result of one run of one task."""

    task: str
    result: dict[str, Any] = {}
    error: str | None = None
    is_complete: bool = True  # False: its time was up, the next run goes on
    seconds: float = 0.0


class Turn:
    """One run of one task: what it may use, and when it has to stop."""

    def __init__(self, desk: Desk, keep: Keep, stop: threading.Event, deadline: float) -> None:
        self.desk = desk
        self.keep = keep
        self.result: dict[str, Any] = {}
        self.is_complete = True
        self._stop = stop
        self._deadline = deadline

    def is_over(self) -> bool:
        if self._stop.is_set() or time.monotonic() > self._deadline:
            self.is_complete = False
        return not self.is_complete

    def add(self, name: str, count: int) -> None:
        self.result[name] = self.result.get(name, 0) + count

    def patiently(self, attempt: Callable[[], Any]) -> Any:
        """Schema changes give way to writers, so they may need several tries."""
        for _ in range(LOCK_TRIES):
            try:
                return attempt()
            except psycopg.errors.LockNotAvailable:
                if self._stop.wait(LOCK_PAUSE):
                    break
        return attempt()


class Task(msgspec.Struct, frozen=True):
    every: float
    run: Callable[[Turn], None]
    needs: tuple[str, ...] = ()  # runs only where retention names one of these


def run_due(dsn: str, keep: Keep, stop: threading.Event, budget: float = 20.0) -> list[Upkeep]:
    """Run the tasks that are due and not taken by another runner; each within its share of time."""
    done: list[Upkeep] = []
    with Desk(dsn) as desk:
        wanted = _wanted(keep)
        _announce(desk, wanted)
        while not stop.is_set():
            with desk.transaction(WORKER) as errand:
                found = errand.run("upkeep", "claim_task", wanted, runner(), CLAIM_SECONDS)
            if not found:
                break
            done.append(_run(desk, found[0][0], keep, stop, budget))
    return done


def run_all(dsn: str, keep: Keep, stop: threading.Event | None = None) -> list[Upkeep]:
    """Run every task to its end, due or not."""
    with Desk(dsn) as desk:
        wanted = _wanted(keep)
        _announce(desk, wanted)
        return [_run(desk, task, keep, stop or threading.Event(), float("inf")) for task in wanted]


def runner() -> str:
    return f"{platform.node()}:{os.getpid()}"


def _wanted(keep: Keep) -> list[str]:
    return [name for name, task in TASKS.items() if not task.needs or any(need in keep for need in task.needs)]


def _announce(desk: Desk, tasks: list[str]) -> None:
    with desk.transaction(WORKER) as errand:
        errand.run("upkeep", "add_tasks", tasks)


def _run(desk: Desk, name: str, keep: Keep, stop: threading.Event, budget: float) -> Upkeep:
    task, began = TASKS[name], time.monotonic()
    turn = Turn(desk, keep, stop, began + budget)
    with desk.transaction(WORKER) as errand:
        started, _ = errand.one("upkeep", "read_moment", 0.0)
    error = None
    try:
        task.run(turn)
    except NotPermitted as refusal:
        error = f"{refusal}: GRANT {MAINTENANCE} TO the login that runs the upkeep."
    except (psycopg.Error, StoreError) as failure:
        error = str(failure).strip()
    done = Upkeep(name, turn.result, error, turn.is_complete, time.monotonic() - began)
    _record(desk, task, done, started)
    return done


def _record(desk: Desk, task: Task, done: Upkeep, started: Any) -> None:
    after = RETRY_AFTER if done.error else task.every if done.is_complete else GO_ON_AFTER
    with desk.transaction(WORKER) as errand:
        errand.run("upkeep", "finish_task", done.task, min(after, task.every), done.error)
        if done.error or any(done.result.values()):
            result = msgspec.json.encode(done.result).decode()
            errand.run("upkeep", "record_run", uuid.uuid4(), done.task, runner(), started, result, done.error)


# --- the tasks -----------------------------------------------------------------------------------------------------


def _partitions(turn: Turn) -> None:
    """The months ahead exist, and rows that came before their month did have moved to it."""

    def ensure() -> list[str]:
        with turn.desk.transaction(WORKER) as errand:
            return [row[0] for row in errand.run("upkeep", "ensure_partitions")]

    def move() -> str | None:
        with turn.desk.transaction(WORKER) as errand:
            return errand.one("upkeep", "move_default_month")[0]

    with turn.desk.transaction(WORKER) as errand:
        [turn.result["in_default"]] = errand.one("upkeep", "count_default_rows")  # before they move: it is an alarm
    turn.result["made"] = turn.patiently(ensure)
    turn.result["moved"] = moved = list[str]()
    while not turn.is_over() and (month := turn.patiently(move)) is not None:
        moved.append(month)


def _expiry(turn: Turn) -> None:
    """Remove events that have expired."""
    for name in ("expire_inbox", "expire_key_events"):
        removed = BATCH
        while removed == BATCH and not turn.is_over():
            with turn.desk.transaction(WORKER) as errand:
                removed = errand.one("upkeep", name, BATCH)[0]
            turn.add(name, removed)


def _carry(turn: Turn) -> None:
    """Carry instances at rest out of the months that are old enough to go, then remove receipts of what they passed.

    The first table whose months go decides. A batch whose receipts were not removed, because the runner died, gives
    them up when it is carried the next time.
    """
    shortest = min(turn.keep[table] for table in CARRIED_FOR if table in turn.keep)
    carrier = carry.Carrier()
    while True:
        with turn.desk.transaction(WORKER) as errand:
            _, older = errand.one("upkeep", "read_moment", shortest)
            mark = carry.read_mark(errand, "carry")
            older = older.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)  # whole months
            due = carry.find_due(errand, older, mark)
        for first in range(0, len(due), carry.TOGETHER):
            with turn.desk.transaction(WORKER) as errand:
                carried = carrier.carry(errand, due[first : first + carry.TOGETHER], older, mark)
            turn.add("carried", len(carried))
            _forget_passed(turn, carried)
        is_last = mark.place.org is None
        if is_last:
            turn.add("left", sum(left.count for left in mark.found))
            mark.end()
        with turn.desk.transaction(WORKER) as errand:
            carry.save_mark(errand, "carry", mark)
        if is_last or turn.is_over():
            break


def _forget_passed(turn: Turn, carried: list[bytes]) -> None:
    removed = FOLDED if carried else 0
    while removed == FOLDED:
        with turn.desk.transaction(MAINTENANCE) as errand:
            removed = carry.prune_receipts(errand, carried, turn.keep.get("requests"), FOLDED)
        turn.add("receipts", removed)


def _months(*tables: str) -> Callable[[Turn], None]:
    """Drop the months of tables that are kept equally long, under the name of the first."""

    def drop(turn: Turn) -> None:
        turn.result |= {"dropped": [], "held": {}}
        for table in tables:
            with turn.desk.transaction(MAINTENANCE) as errand:
                _, older = errand.one("upkeep", "read_moment", turn.keep[tables[0]])
                found = errand.run("upkeep", "list_old_partitions", table, older)
            turn.result["held"] |= {child: str(holder) for child, holder in found if holder is not None}
            for child, holder in found:
                may_go = holder is None and not turn.is_over()
                if may_go and turn.patiently(lambda t=table, c=child, o=older: _drop(turn, t, c, o)):
                    turn.result["dropped"].append(child)

    return drop


def _drop(turn: Turn, table: str, child: str, older: Any) -> bool:
    with turn.desk.transaction(MAINTENANCE) as errand:
        return errand.one("upkeep", "drop_partition", table, child, older)[0]


def _pages(task: str, statement: str) -> Callable[[Turn], None]:
    """A pass over instances by id; its place is saved with each page."""

    def walk(turn: Turn) -> None:
        while True:
            with turn.desk.transaction(MAINTENANCE) as errand:
                _, older = errand.one("upkeep", "read_moment", turn.keep[task])
                [after] = errand.one("upkeep", "read_position", task)
                visited, removed, last = errand.one("upkeep", statement, older, after, BATCH)
                errand.run("upkeep", "save_position", task, last if visited == BATCH else None)
            turn.add("removed", removed)
            if visited < BATCH or turn.is_over():
                break

    return walk


def _dead_letters(turn: Turn) -> None:
    removed = BATCH
    while removed == BATCH and not turn.is_over():
        with turn.desk.transaction(MAINTENANCE) as errand:
            _, older = errand.one("upkeep", "read_moment", turn.keep["dead_letters"])
            removed = errand.one("upkeep", "prune_dead_letters", older, BATCH)[0]
        turn.add("removed", removed)


def _statistics(turn: Turn) -> None:
    """Fold the counts of commits. A fold is no result: its line every half minute would be noise."""
    folded = FOLDED
    while folded == FOLDED and not turn.is_over():
        with turn.desk.transaction(WORKER) as errand:
            [folded] = errand.one("upkeep", "fold_statistics", FOLDED)


def _old_statistics(turn: Turn) -> None:
    removed = FOLDED
    while removed == FOLDED and not turn.is_over():
        with turn.desk.transaction(MAINTENANCE) as errand:
            _, older = errand.one("upkeep", "read_moment", turn.keep["statistics"])
            [removed] = errand.one("upkeep", "prune_statistics", older, FOLDED)
        turn.add("removed", removed)


def _vacuum(turn: Turn) -> None:
    """Vacuum the queues when they have many dead rows. A vacuum is no result either: under load there is always one."""
    with turn.desk.transaction() as errand:
        [dead] = errand.one("upkeep", "count_dead_rows")
    if dead > DEAD_ROWS:
        turn.desk.alone("upkeep", "vacuum_queues")


def _runs(turn: Turn) -> None:
    with turn.desk.transaction(WORKER) as errand:
        errand.run("upkeep", "prune_runs")


CARRIED_FOR: Final = ("steps", "events", "effects")  # months that unfinished instances hold

TASKS: Final[dict[str, Task]] = {
    "partitions": Task(DAY, _partitions),
    "expiry": Task(HOUR, _expiry),
    "vacuum": Task(10.0, _vacuum),
    "statistics": Task(30.0, _statistics),
    "old_statistics": Task(DAY, _old_statistics, ("statistics",)),
    "runs": Task(DAY, _runs),
    "carry": Task(DAY, _carry, CARRIED_FOR),
    "steps": Task(DAY, _months("steps"), ("steps",)),
    "events": Task(DAY, _months("events"), ("events",)),
    "effects": Task(DAY, _months("effects"), ("effects",)),
    "acks": Task(DAY, _months("acks", "ack_consumers"), ("acks",)),
    "notices": Task(DAY, _months("notices"), ("notices",)),
    "instances": Task(HOUR, _pages("instances", "purge_instances"), ("instances",)),
    "receipts": Task(HOUR, _pages("receipts", "prune_receipts"), ("receipts",)),
    "dead_letters": Task(HOUR, _dead_letters, ("dead_letters",)),
}
