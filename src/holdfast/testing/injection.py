"""Injection of faults: the places a failpoint may be set at, those that are set, and the act at each of them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from holdfast.errors import HoldfastError

STATEMENT_BEFORE: Final = "statement.before"
STATEMENT_AFTER: Final = "statement.after"
POINTS: Final = {
    STATEMENT_BEFORE: "a statement is about to be sent; also as statement.before.NAME",
    STATEMENT_AFTER: "a statement has been answered; also as statement.after.NAME",
    "commit.before_commit": "all of a transaction is written, COMMIT is not sent",
    "commit.after_commit": "COMMIT has taken effect, its answer is not acted upon",
    "commit.before_acting": "a lane knows that its commit is stored; no handler has started, no caller been told",
    "handler.before": "the step is leased and counted, its handler not called",
    "handler.after": "the handler has answered, nobody knows",
    "call.before": "a call's transaction is open, its function not called",
    "call.after": "the function has answered, nothing is written",
    "delivery.before": "an effect is leased and counted, nothing of it is sent",
    "delivery.after": "the target has answered, nothing is stored",
    "lease.before_register": "a worker is about to take its lease",
    "lease.before_renew": "the lease is about to be renewed",
    "lease.after_renew": "the lease has been renewed",
    "scan.before": "a worker is about to look for lost work, due timers and ripe work",
    "scan.after": "it has looked",
    "worker.before_stop": "a worker has been told to leave and has given nothing back",
}
_DEFAULT_SQLSTATE: Final = "40001"  # serialization_failure: what an engine must expect at any time


class InjectedFault(HoldfastError):
    """A failpoint was told to fail here."""

    code = "FAILPOINT"


@dataclass
class Failpoint:
    """Acts at `points`, counted together: `after` hits pass, then it acts `times` times (0: always)."""

    points: frozenset[str]
    action: str
    after: int = 0
    times: int = 1
    seconds: float = 0.1
    sqlstate: str = _DEFAULT_SQLSTATE
    hits: int = 0
    fired: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def is_due(self, names: Iterable[str]) -> bool:
        if self.points.isdisjoint(names):
            return False
        with self._counting:
            self.hits += 1
            due = self.hits > self.after and (not self.times or self.fired < self.times)
            self.fired += due
        return due


active: list[Failpoint] = []


async def meet(*names: str, cut: Callable[[], NoReturn] | None = None) -> None:
    """Act on due failpoints, on the event loop: a delay holds up this caller alone."""
    for point in _due(names):
        if point.action == "delay":
            await asyncio.sleep(point.seconds)
        else:
            _act(point, names, cut)


def meet_blocking(*names: str, cut: Callable[[], NoReturn] | None = None) -> None:
    """Act on due failpoints in a thread, or where the loop itself is to hang."""
    for point in _due(names):
        if point.action == "delay":
            threading.Event().wait(point.seconds)
        else:
            _act(point, names, cut)


def _due(names: tuple[str, ...]) -> list[Failpoint]:
    return [point for point in tuple(active) if point.is_due(names)]


def _act(point: Failpoint, names: tuple[str, ...], cut: Callable[[], NoReturn] | None) -> None:
    if point.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "freeze":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif point.action == "disconnect" and cut is not None:
        cut()
    elif names[0].startswith("statement."):
        from holdfast.store.pg.session import DatabaseError

        raise DatabaseError(point.sqlstate, "a failpoint was told to fail", names[-1])
    else:
        raise InjectedFault(f"The failpoint {names[-1]} was told to fail.")
