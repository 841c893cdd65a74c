"""Statistics: endings counted in the transaction of their commit, and the sums that reads return.

A commit appends one row per organisation with all it ended, so no commit waits for a shared counter, and a refused
commit leaves no count behind. The upkeep folds these rows into sums by the hour and into one sum of all times; a read
adds the rows not folded yet. Durations are a histogram whose bars widen with the duration: four to each doubling.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec

from holdfast.core.model.decision import Decision
from holdfast.core.model.state import Instance
from holdfast.core.model.status import TERMINAL
from holdfast.core.model.timestamps import from_datetime
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.wire import read_int

FLOW: Final = ""  # stands for the flow itself where a step would be named
STARTED: Final = "started"
NO_BAR: Final = -1  # a count without durations
HOUR: Final = 3_600_000_000

Key = tuple[str, str, int, str, str]  # org, flow, version, node, outcome

_TAKEN_BACK: Final = "rolled_back"
# Events that no closed row tells, by what they count as.
_BY_EVENT: Final = {
    "instance_started": STARTED,
    "rollback_completed": _TAKEN_BACK,
    "step_retried": "retried",
    "compensation_retried": "retried",
}
_UNCOUNTED: Final = frozenset({"end", "control"})
_ONLY_CLOSE: Final = frozenset({"advance", "fail", "plan"})  # plain decisions that count for the steps they close


class Counted(Protocol):
    """All decisions of one instance in one commit."""

    before: Instance
    decisions: list[Decision]


class Sum(msgspec.Struct, frozen=True, gc=False):
    """One bar of the histogram of one outcome of one step; microseconds."""

    flow: str
    version: int
    node: str
    outcome: str
    bar: int
    count: int
    total: int
    least: int
    most: int


def bar_of(duration: int) -> int:
    size = duration.bit_length()
    return duration if size < 3 else (size - 2) * 4 + ((duration >> (size - 3)) & 3)


def edge_of(bar: int) -> int:
    """The least duration of a bar."""
    return bar if bar < 4 else (4 + bar % 4) << (bar // 4 - 1)


class Tally:
    """Endings counted in one commit."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._durations: dict[Key, list[int]] = {}
        self._counts: dict[Key, int] = {}

    def add(self, entries: Iterable[Counted]) -> None:
        now, durations = self._now, self._durations
        for entry in entries:
            status = entry.before.status
            for decision in entry.decisions:
                after = decision.instance
                for closed in decision.closed:
                    key = (after.org, after.flow, after.flow_version, closed.node, closed.status)
                    try:
                        durations[key].append(now - closed.at)
                    except KeyError:
                        durations[key] = [now - closed.at]
                plain = decision.plain
                if plain in _ONLY_CLOSE:  # nearly every decision, and nothing else is to be counted about it
                    continue
                if plain == "undo":
                    self._add_moves(decision)
                    continue
                if after.status in TERMINAL and status not in TERMINAL:
                    key = (after.org, after.flow, after.flow_version, FLOW, after.status)
                    durations.setdefault(key, []).append(now - after.created)
                if plain != "finish":
                    self._add_events(decision)
                status = after.status

    def _add_events(self, decision: Decision) -> None:
        after = decision.instance
        self._add_moves(decision)
        for event in decision.events:
            if event.type in _BY_EVENT:
                self._count(after, event.node or FLOW, _BY_EVENT[event.type])
        if not decision.plain:
            for opened in decision.opened:
                if opened.closed and opened.behaviour not in _UNCOUNTED:
                    self._count(after, opened.node, opened.status)

    def _add_moves(self, decision: Decision) -> None:
        for moved in decision.moved:
            if moved.node and moved.status == _TAKEN_BACK:
                self._count(decision.instance, moved.node, _TAKEN_BACK)

    def _count(self, instance: Instance, node: str, outcome: str) -> None:
        key = (instance.org, instance.flow, instance.flow_version, node, outcome)
        self._counts[key] = self._counts.get(key, 0) + 1

    def rows(self) -> list[tuple[str, bytes]]:
        """One row per organisation: (flow, version, node, outcome, (bar, count, total, least, most) …)."""
        by_org: dict[str, list[Any]] = {}
        for (org, *rest), durations in self._durations.items():
            by_org.setdefault(org, []).append((*rest, _bars(durations)))
        for (org, *rest), count in self._counts.items():
            by_org.setdefault(org, []).append((*rest, [(NO_BAR, count, 0, 0, 0)]))
        return [(org, msgspec.json.encode(tallies)) for org, tallies in by_org.items()]


def _bars(durations: list[int]) -> list[tuple[int, int, int, int, int]]:
    durations.sort()
    if durations[0] < 0:  # the clock was set back
        durations = [max(duration, 0) for duration in durations]
    begin, bars = 0, list[tuple[int, int, int, int, int]]()
    while begin < len(durations):
        bar = bar_of(durations[begin])
        end = bisect_left(durations, edge_of(bar + 1), begin)
        part = durations[begin:end]
        bars.append((bar, end - begin, sum(part), part[0], part[-1]))
        begin = end
    return bars


async def read_statistics(
    session: Session, org: str, flow: str | None, version: int | None, since: datetime | None, until: datetime | None
) -> list[Sum]:
    """Sums of all times, or of every hour that has a part between `since` and `until`."""
    if since is None and until is None:
        query = SQL.read_statistics.one(org, flow, version)
    else:
        first = None if since is None else hour_of(from_datetime(since))
        last = None if until is None else hour_of(from_datetime(until) - 1)
        query = SQL.read_statistics_between.one(org, flow, version, first, last)
    results = await session.once(SQL.use_tenant.one(org), query)
    return [_sum(row) for row in rows(results[1])]


def hour_of(now: int) -> int:
    return now - now % HOUR


def _sum(row: Sequence[bytes]) -> Sum:
    flow, version, node, outcome, *numbers = row
    return Sum(flow.decode(), read_int(version), node.decode(), outcome.decode(), *map(read_int, numbers))
