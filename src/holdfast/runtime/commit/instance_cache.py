"""Instances under way in this process: their snapshots, which spare commits a read, and who waits for them.

Only an instance whose next step is run here is worth keeping. A snapshot saves a read and nothing else: every commit
guards the version it was decided on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from holdfast.core.model.decision import Decision
from holdfast.core.model.state import Instance
from holdfast.core.model.status import TERMINAL, Phase
from holdfast.runtime.commit.batch import Plan
from holdfast.store.commit.rows import Entry

MOST: Final = 20_000


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """State of the instance after a committed signal, and the database's time of that commit."""

    instance: Instance | None  # None: it had been applied before
    now: int
    started: Any = None  # what `local` held for it
    answer: bytes | None = None  # to a trigger
    last_step: str | None = None  # the visit that was opened last, where the commit opened one


class News(asyncio.Event):
    """Set by every commit of this process that changes one instance; the last of them is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.latest: Outcome | None = None


class Snapshots:
    def __init__(self) -> None:
        self.cache: dict[bytes, Instance] = {}
        self.waiters: dict[bytes, list[asyncio.Future[Outcome]]] = {}
        self.local: dict[bytes, Any] = {}  # started here and not over yet: a wait for them need not read
        self._watches: dict[bytes, list[News]] = {}

    @contextmanager
    def watch(self, id: bytes) -> Generator[News]:
        news = News()
        watching = self._watches.setdefault(id, [])
        watching.append(news)
        try:
            yield news
        finally:
            watching.remove(news)
            if not watching:
                del self._watches[id]

    def is_working(self, id: bytes, org: str) -> bool:
        """Check whether the instance's steps run here, so that its next change happens here too."""
        cached = self.cache.get(id)
        return cached is not None and cached.org == org and _is_working(cached)

    def committed(self, plan: Plan, id: bytes, entry: Entry) -> None:
        after = entry.decisions[-1].instance
        for news in self._watches.get(id, ()):
            news.latest = Outcome(after, after.updated, last_step=_last_opened(entry.decisions))
            news.set()
        if after.status in TERMINAL:
            self.cache.pop(id, None)
            started = self.local.pop(id, None)
            for waiter in self.waiters.pop(id, ()):
                if not waiter.done():
                    waiter.set_result(Outcome(after, after.updated, started))
        elif _works_here(plan, entry.decisions) or (id in self.cache and _is_working(after)):
            self._remember(after)
            if _works_elsewhere(plan, entry.decisions):
                self._may_end_elsewhere(id)
        else:
            self.goes_elsewhere(id)

    def _remember(self, instance: Instance) -> None:
        """The oldest goes when there are too many."""
        self.cache[instance.id] = instance
        if len(self.cache) > MOST:
            self.goes_elsewhere(next(iter(self.cache)))

    def goes_elsewhere(self, id: bytes) -> None:
        self.cache.pop(id, None)
        self._may_end_elsewhere(id)

    def _may_end_elsewhere(self, id: bytes) -> None:
        """Release local waiters, since the next step may end in another process: they poll the database from now on."""
        if self.local.pop(id, None) is not None:
            for waiter in self.waiters.get(id, ()):
                if not waiter.done():
                    waiter.set_result(Outcome(None, 0))

    def leave_all(self) -> None:
        """Give up all local instances after the loss of the lease: none of them need end here."""
        for id in list(self.local):
            self.goes_elsewhere(id)
        self.cache.clear()

    def forget_older(self, id: bytes, version: int) -> None:
        """Drop a snapshot of another version: the instance changed elsewhere, and a commit on it would be refused."""
        cached = self.cache.get(id)
        if cached is not None and cached.version != version:
            del self.cache[id]

    def forget(self, ids: set[bytes]) -> None:
        for id in ids:
            self.cache.pop(id, None)


def _last_opened(decisions: list[Decision]) -> str | None:
    opened = (step for decision in reversed(decisions) for step in reversed(decision.opened))
    return next((step.node for step in opened if step.kind == "forward"), None)


def _is_working(instance: Instance) -> bool:
    return any(token.phase is Phase.WORKING for token in instance.state.tokens.values())


def _works_here(plan: Plan, decisions: list[Decision]) -> bool:
    leased = plan.leased
    for decision in decisions:
        for dispatch in decision.dispatches:
            if dispatch.step in leased:
                return True
    return False


def _works_elsewhere(plan: Plan, decisions: list[Decision]) -> bool:
    """Check whether a dispatched step goes through the queue, and so to any worker."""
    leased = plan.leased
    for decision in decisions:
        for dispatch in decision.dispatches:
            if dispatch.step not in leased:
                return True
    return False
