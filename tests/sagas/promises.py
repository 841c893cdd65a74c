"""What a saga promises, computed from its definition and the record of its calls alone.

Nothing of the engine's own way to find the order is used here: the definition is read backwards, item by item, and what
was not executed falls out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from holdfast.doors.saga.model import (
    Condition,
    Definition,
    Fork,
    Human,
    Items,
    Join,
    Parallel,
    Rejoin,
    SavePoint,
    Step,
    SubFlow,
    WaitEvent,
    every_item,
    inner_paths,
)

OVER: Final = frozenset({"completed", "failed", "cancelled", "aborted"})
STANDING: Final = frozenset({"completed", "confirmed"})
OPEN: Final = frozenset({"pending", "running", "waiting", "waiting_decision", "compensation", "paused"})
TAKEN_BACK: Final = frozenset({"rolled_back", "failed"})
LOST: Final = frozenset({"LEASE_LOST", "OUTCOME_UNKNOWN"})  # the errors of a step whose worker was lost

ANSWERED: Final = "after_cancel"  # the outcome of a step whose worker said what became of it when it was stopped
EXPIRED: Final = "WORKFLOW_TIMEOUT"  # the error of a step that was open when its instance was out of time


class Row(NamedTuple):
    """A visit of a node; moments are (version of the instance, place in the decision)."""

    node: str
    kind: str
    run: int
    status: str
    outcome: str | None
    opened: tuple[int, int]
    closed: tuple[int, int] | None
    code: str | None = None  # of its error
    calls: int = 0  # that were counted before they were made


class Call(NamedTuple):
    """One line of the record the handlers wrote."""

    seq: int
    step: str
    attempt: int
    what: str  # begun | done | stopped
    pid: int


class Tale(msgspec.Struct):
    """One instance that is over."""

    definition: Definition
    status: str
    rows: list[Row]
    calls: list[Call]
    to_root: bool = False  # a rollback that no save point stops
    killed: frozenset[int] = frozenset()  # processes that died, or lost their lease, in the middle of whatever they did
    answered: tuple[str, ...] = ()  # the node of each dead letter that was put back into the queue

    @property
    def is_disturbed(self) -> bool:
        """A process that is lost may have left a call without its end, and the engine without the knowledge of it."""
        return bool(self.killed) and (
            any(call.pid in self.killed for call in self.calls)
            or any(row.code in LOST for row in self.rows)  # lost before it could write anything
        )


# --- the definition ---------------------------------------------------------------------------------------------------


def backwards(items: Items) -> Iterator[str]:
    """Every name in the order in which a rollback meets it."""
    for item in reversed(items):
        if isinstance(item, Rejoin):
            continue
        if isinstance(item, Condition) and item.otherwise is not None:
            yield from backwards(item.otherwise)
        if isinstance(item, Fork | Parallel):
            for branch in item.branches:
                yield from backwards(branch)
        yield item.name


def racing(items: Items) -> Iterator[str]:
    """Names in branches of which one may win and the others lose."""
    for position, item in enumerate(items):
        if isinstance(item, Fork | Parallel):
            after = items[position + 1] if position + 1 < len(items) else None
            is_race = isinstance(after, Join) and after.mode == "any"
            for branch in item.branches:
                yield from backwards(branch) if is_race else racing(branch)
        if isinstance(item, Condition) and item.otherwise is not None:
            yield from racing(item.otherwise)


def undoes(items: Items) -> Iterator[tuple[str, str, int | None]]:
    """What is undone, by what, in how many calls."""
    for item in items:
        if isinstance(item, Step | Human | WaitEvent | SubFlow) and item.undo is not None:
            yield item.name, item.undo.name, item.undo.retries if item.undo.idempotent else 1
        if isinstance(item, Fork | Parallel):
            for branch in item.branches:
                yield from undoes(branch)
        if isinstance(item, Condition) and item.otherwise is not None:
            yield from undoes(item.otherwise)


def called(items: Items) -> Iterator[Step]:
    """Whatever has a handler that is called on the way forward."""
    return (item for item in every_item(items) if isinstance(item, Step))


def fork_depths(items: Items, outside: int = 0) -> Iterator[tuple[str, int]]:
    """Every fork, and how many there are from it outwards, itself included. A condition does not count."""
    for item in items:
        inside = outside + isinstance(item, Fork | Parallel)
        if isinstance(item, Fork | Parallel):
            yield item.name, inside
        for path in inner_paths(item):
            yield from fork_depths(path, inside)


def behind(items: Items, passed: set[str]) -> set[str]:
    """What stands behind the last save point that was passed: all, if none was."""
    points = [n for n, item in enumerate(items) if isinstance(item, SavePoint) and item.name in passed]
    return set(backwards(items[points[-1] + 1 :] if points else items))


# --- the promises -----------------------------------------------------------------------------------------------------


def check(tale: Tale) -> None:
    assert tale.status in OVER
    last = {row.node: row for row in sorted(tale.rows, key=lambda row: row.run)}
    start = min((row.opened[0] for row in tale.rows if row.node == "@rollback"), default=None)
    _check_calls(tale, last)
    if start is None:
        _check_forward_only(tale, last)
    else:
        _check_no_way_forward(tale, start)
        _check_rollback(tale, last, start)


def _check_calls(tale: Tale, last: dict[str, Row]) -> None:
    """Every call belongs to a row, and every row of a step that ended well to a call that did."""
    assert {call.step for call in tale.calls} <= set(last)
    assert not any(row.status in OPEN for row in last.values() if row.kind != "control"), "nothing is left open"
    for step in called(tale.definition.items):
        rows = sorted((row for row in tale.rows if row.node == step.name), key=lambda row: row.run)
        calls = [call for call in tale.calls if call.step == step.name]
        limit = max(1, tale.definition.retries if step.retries is None else step.retries) if step.idempotent else 1
        _check_runs(tale, step.name, rows)
        _check_begun(tale, step.name, rows, calls, limit)
        _check_done(tale, step, rows, calls)


def _check_runs(tale: Tale, name: str, rows: list[Row]) -> None:
    """A step runs again only because somebody answered its dead letter; neither a pause nor a dead process is one."""
    assert [row.run for row in rows] == list(range(len(rows))), f"{name}: one row for each run"
    assert len(rows) <= 1 + tale.answered.count(name), f"{name} ran {len(rows)} times without a letter for each"
    assert all(row.status == "superseded" for row in rows[:-1]), f"{name} ran again, and its last run stands"


def _check_begun(tale: Tale, name: str, rows: list[Row], calls: list[Call], limit: int) -> None:
    """So many calls for each run, every one counted before it began; those that died with a process are among them."""
    begun = [call.attempt for call in calls if call.what == "begun"]
    assert all(1 <= attempt <= limit for attempt in begun), f"{name} has {limit} calls and began {begun}"
    assert all(begun.count(attempt) <= len(rows) for attempt in begun), f"{name} began {begun} in {len(rows)} runs"
    counted = sum(row.calls for row in rows)
    assert len(begun) <= counted, f"{name} was called {len(begun)} times, {counted} were counted"
    if not tale.killed:
        due = sum(max(0, row.calls - _is_unanswered(row)) for row in rows)
        assert len(begun) >= due, f"{name} was called {len(begun)} times, {counted} were counted"


def _is_unanswered(row: Row) -> bool:
    """It was closed while its worker had it, without waiting for an answer. If it was told before its turn came, one
    call was counted and never made, like one that died first; who answers takes such a call back."""
    return row.code == EXPIRED or (row.status in ("cancelled", "skipped") and row.outcome != ANSWERED)


def _check_done(tale: Tale, step: Step, rows: list[Row], calls: list[Call]) -> None:
    done = sum(call.what == "done" for call in calls)
    well = sum(row.outcome == "completed" for row in rows)
    assert done >= well, f"{step.name} completed, and no call of it did"
    if not tale.is_disturbed and step.timeout is None:  # else its time may be over at the moment it succeeds
        assert done <= len(rows), f"{step.name} succeeded {done} times in {len(rows)} runs"


def _check_forward_only(tale: Tale, last: dict[str, Row]) -> None:
    assert all(row.kind != "compensate" for row in tale.rows)
    undoing = {name for _, name, _ in undoes(tale.definition.items)}
    assert not any(call.step in undoing for call in tale.calls), "a compensation ran, and nothing was rolled back"
    if tale.status != "completed":
        _check_stopped(tale, last)
    losers = set(racing(tale.definition.items))
    for row in last.values():
        if row.status not in STANDING and not _is_let_go(tale, row):
            assert row.node in losers, f"{row.node} is {row.status} in an instance that {tale.status}"
            # Superseded: it was to run again after a pause, and its branch lost the race at that very moment.
            assert row.status in ("cancelled", "failed", "skipped", "superseded"), f"{row.node} is {row.status}"


def _check_stopped(tale: Tale, last: dict[str, Row]) -> None:
    """Over without a rollback: aborted, by an operator or by whoever said no."""
    assert tale.status == "aborted", f"{tale.status} without a rollback"
    ended = [row.opened[0] for row in tale.rows if row.node == "@abort"]
    ended += [row.closed[0] for row in last.values() if row.status == "rejected" and row.closed is not None]
    assert ended, "nothing made it aborted"
    late = [row.node for row in tale.rows if row.kind == "forward" and row.opened[0] > max(ended)]
    assert not late, f"{late} opened after the end"


def _is_let_go(tale: Tale, row: Row) -> bool:
    """What an instance that stopped in the middle may leave as it is: nobody waits for it, nobody takes it back."""
    return tale.status == "aborted" and row.status in ("skipped", "cancelled", "rejected", "failed", "superseded")


def _check_no_way_forward(tale: Tale, start: int) -> None:
    undoing = {name for _, name, _ in undoes(tale.definition.items)}
    assert tale.status != "completed"
    assert all(row.opened[0] <= start for row in tale.rows if row.kind == "forward"), "a step opened after the rollback"
    first = min((call.seq for call in tale.calls if call.step in undoing), default=None)
    late = [call for call in tale.calls if first is not None and call.seq > first and call.step not in undoing]
    assert not [call for call in late if call.what == "begun"], "forward work began after the rollback had"


def _check_rollback(tale: Tale, last: dict[str, Row], start: int) -> None:
    items = tale.definition.items
    meant = set(backwards(items)) if tale.to_root else behind(items, {row.node for row in tale.rows})
    undo = {step: name for step, name, _ in undoes(items)}
    done = _executed(tale, last, {step: undo[step] for step in undo if step in meant})
    first = _failed_first(tale, last, start)
    assert first not in set(racing(items)), f"{first} has only lost a race, and the whole is rolled back"
    expected = promised(items, undo, done, first)
    began = list(dict.fromkeys(call.step for call in tale.calls if call.step in set(undo.values())))
    if tale.is_disturbed:
        began, expected = _known_order(tale, began, expected)
    if tale.status == "aborted":
        assert began == expected[: len(began)], f"{began} is no beginning of {expected}"
        return
    assert began == expected, f"the order was {began}, promised is {expected}"
    for step in meant & last.keys():
        assert last[step].status not in STANDING, f"{step} was left behind"
    _check_once(tale, last, undo, done)


def _known_order(tale: Tale, began: list[str], expected: list[str]) -> tuple[list[str], list[str]]:
    """A call that died with its process before it began is counted and not recorded: its order cannot be known."""
    again = {row.node for row in tale.rows if row.run}
    known = [name for name in began if name not in again]
    lost = {row.node for row in tale.rows if row.code in LOST}
    forgotten = [name for name in expected if name not in {*began, *again, *lost}]
    assert not forgotten or tale.status == "aborted", f"{forgotten} never began and was not lost"
    return known, [name for name in expected if name in known]


def promised(items: Items, undo: dict[str, str], done: set[str], first: str | None) -> list[str]:
    """The compensations in their order: of the step that failed, then strictly backwards."""
    order = [step for step in backwards(items) if step in done]
    return [undo[step] for step in sorted(order, key=lambda step: step != first)]


def _failed_first(tale: Tale, last: dict[str, Row], start: int) -> str | None:
    """The step whose failure began it: the last that failed in that decision, for a race is lost by its last runner; or
    the first that failed in the pause before it, which nobody could meet until it was over."""
    failed = [
        (row.closed, row.node)
        for row in last.values()
        if row.kind == "forward" and row.closed is not None and row.closed[0] <= start
        and row.outcome in ("error", "timeout", "failed") and row.status in TAKEN_BACK
    ]  # fmt: skip
    now = [(closed, node) for closed, node in failed if closed[0] == start]
    if now or not any(row.node == "@resume" and row.opened[0] == start for row in tale.rows):
        return max(now)[1] if now else None
    paused = max(row.opened[0] for row in tale.rows if row.node == "@suspend")
    losers = set(racing(tale.definition.items))
    meanwhile = [(closed, node) for closed, node in failed if closed[0] > paused and node not in losers]
    return min(meanwhile)[1] if meanwhile else None


def _executed(tale: Tale, last: dict[str, Row], undo: dict[str, str]) -> set[str]:
    """What was done: steps that ended, and losers whose handlers succeeded all the same."""
    well = succeeded(tale)
    done: set[str] = set()
    for step in undo.keys() & last.keys():
        status = last[step].status
        if status in TAKEN_BACK or (tale.status == "aborted" and status in STANDING):
            done.add(step)
        if tale.is_disturbed:
            if status == "cancelled" and undo[step] in last:
                done.add(step)
            continue
        if status == "cancelled":
            assert step in well or undo[step] not in last, f"{step} is taken back and never succeeded"
            if step in well and (tale.status != "aborted" or undo[step] in last):
                done.add(step)
        assert status != "skipped" or step not in well or tale.status == "aborted", f"{step} succeeded and was skipped"
    return done


def succeeded(tale: Tale) -> set[str]:
    """Steps with a success that counts: not of a call which overran its time on a busy machine and was made anew by
    another worker before it came back. Its result is refused by the fence, and the later call decides."""
    latest: dict[str, int] = {}
    well: set[str] = set()
    for call in sorted(tale.calls, key=lambda call: call.seq):
        if call.what == "begun":
            latest[call.step] = max(call.attempt, latest.get(call.step, 0))
        elif call.what == "done" and call.attempt >= latest.get(call.step, 0):
            well.add(call.step)
    return well


def _check_once(tale: Tale, last: dict[str, Row], undo: dict[str, str], done: set[str]) -> None:
    limits = {name: max(1, calls or tale.definition.retries) for _, name, calls in undoes(tale.definition.items)}
    for step in done:
        name = undo[step]
        rows = sorted((row for row in tale.rows if row.node == name), key=lambda row: row.run)
        calls = [call for call in tale.calls if call.step == name]
        _check_runs(tale, name, rows)
        assert rows[-1].status in ("completed", "failed")
        if last[step].status != "cancelled":
            assert last[step].status == {"completed": "rolled_back", "failed": "failed"}[rows[-1].status]
        assert sum(call.what == "begun" for call in calls) <= limits[name] * len(rows)
        if not tale.is_disturbed:
            succeeded = sum(call.what == "done" for call in calls)
            assert succeeded == (rows[-1].status == "completed"), f"{name} succeeded {succeeded} times"
