"""What one saga left behind, told so that two of them can be compared: names and numbers instead of ids and moments.

A call that a fault burnt is made again, so the number of calls may differ by what the fault explains, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import psycopg

from faults.replayed import replay_all
from faults.sagas import Saga
from faults.sink import Entry

FAMILY: Final = """
select id, flow, status, reason, data from holdfast.instances
where id = (select id from holdfast.instances where flow = %(flow)s and idempotency_key = %(key)s)
    or parent_id = (select id from holdfast.instances where flow = %(flow)s and idempotency_key = %(key)s)
order by parent_id nulls first
"""
STEPS: Final = """
select i.flow, s.kind, s.path, s.hop, s.run, s.node, s.status, s.input, s.output, (s.detail ->> 'ordinal')::int
from holdfast.steps s join holdfast.instances i on i.id = s.instance_id
where s.instance_id = any(%s) order by 1, 2, 10, 3, 4, 5, 6
"""
EVENTS: Final = """
select i.flow, e.type, e.node from holdfast.events e join holdfast.instances i on i.id = e.instance_id
where e.instance_id = any(%s)
"""
LETTERS: Final = """
select source, envelope ->> 'node', reason, attempts, resolution, resolved_by, resolved_why
from holdfast.dead_letters where instance_id = any(%s) order by 1, 2, 4
"""
STATISTICS: Final = """
select flow, node, outcome, sum(count)::int from (
    select flow, node, outcome, count from holdfast.statistics where hour = '-infinity'
    union all
    select t ->> 0, t ->> 2, t ->> 3, (bar ->> 1)::bigint
    from holdfast.statistics_deltas d, jsonb_array_elements(d.tallies) t, jsonb_array_elements(t -> 4) bar
) x group by 1, 2, 3
"""
WAITING: Final = ("work", "signals", "timers", "key_waits", "inbox")
BURNT: Final = (
    "retried",
    "step_retried",
    "compensation_retried",
    "timer_fired",
)  # fewer of them where a fault took the call
REFUSED: Final = "signal_refused"  # a caller who does not know asks again
UNIQUE: Final = "result"  # of one call


@dataclass(frozen=True)
class Portrait:
    facts: dict[str, Any]
    steps: list[tuple[Any, ...]]
    calls: list[tuple[str, str, int]]  # flow, node and attempt of every call, in the order they began
    wrong: list[str]  # what needs no comparison


def counted(connection: psycopg.Connection[Any]) -> Counter[tuple[str, str, str]]:
    """What the statistics of the whole database say."""
    found = connection.execute(STATISTICS).fetchall()
    return Counter({(flow, node, outcome): count for flow, node, outcome, count in found})


def portray(
    connection: psycopg.Connection[Any],
    saga: Saga,
    key: str,
    entries: Iterable[Entry],
    before: Counter[tuple[str, str, str]],
) -> Portrait:
    """The saga under that key with its sub-flows. `before`: the statistics when it had not begun."""
    family = connection.execute(FAMILY, {"flow": saga.name, "key": key}).fetchall()
    ids: list[UUID] = [row[0] for row in family]
    flows = {str(id): flow for id, flow, *_ in family}
    steps = connection.execute(STEPS, (ids,)).fetchall()
    loose = {*saga.out, *saga.unsure}
    hidden = {*saga.unsure, *map(undo_of, saga.unsure)}
    statistics = counted(connection) - before
    facts = {
        "instances": [(flow, status, reason, _plain(data)) for _, flow, status, reason, data in family],
        "steps": sorted(_step(row, loose) for row in steps if row[1] != "control" and row[5] not in hidden),
        "order": [(row[0], row[5]) for row in steps if row[1] == "compensate" and row[5] not in hidden],
        "control rows": sorted((row[0], row[5]) for row in steps if row[1] == "control"),
        "events": _counts(connection.execute(EVENTS, (ids,)).fetchall(), 1, 2, loose | hidden),
        "dead letters": connection.execute(LETTERS, (ids,)).fetchall(),
        "statistics": _counts(
            [key for key, count in statistics.items() for _ in range(count)], 2, 1, loose | hidden
        ),
    }  # fmt: skip
    mine = [entry for entry in entries if entry.instance in flows]
    return Portrait(
        facts,
        steps,
        [(flows[entry.instance], entry.step, entry.attempt) for entry in mine],
        [*_unsure(saga, steps), *_left(connection, ids), *_replayed(connection, ids), *_called_twice(mine)],
    )


def differences(known: Portrait, found: Portrait, saga: Saga, burnt: int) -> list[str]:
    """`burnt`: how many calls of one step the fault may have cost."""
    told = list(found.wrong)
    for name, expected in known.facts.items():
        if found.facts[name] != expected:
            told.append(f"{name}: {_apart(expected, found.facts[name])}")
    undos = _undos(known.steps)
    hidden = {*saga.unsure, *map(undo_of, saga.unsure)}
    if _sequence(known, undos - hidden) != _sequence(found, undos - hidden):
        told.append(f"compensations began as {_sequence(found, undos - hidden)}")
    told += _forward_after_backward(found, undos)
    told += _calls(known, found, hidden, burnt)
    return told


def undo_of(step: str) -> str:
    return f"un_{step}"


def _step(row: tuple[Any, ...], loose: set[str]) -> str:
    """Of a step whose worker may not live to tell its result, how it ended counts, and not what it answered."""
    flow, kind, path, hop, run, node, status, input, output, _ = row
    if node in loose or node in set(map(undo_of, loose)):
        input = output = None
    return f"{flow} {path}@{hop} {kind} {run} {node} {status} {_plain(input)} → {_plain(output)}"


def _plain(value: Any) -> Any:
    """Without what is unique to one call or one instance."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in sorted(value.items()) if name not in (UNIQUE, "key")}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def _counts(rows: Iterable[tuple[Any, ...]], kind: int, node: int, without: set[str]) -> dict[str, int]:
    kept = (row for row in rows if row[kind] not in (*BURNT, REFUSED) and row[node] not in without)
    return dict(sorted(Counter(" ".join(map(str, row[:3])) for row in kept).items()))


def _unsure(saga: Saga, steps: list[tuple[Any, ...]]) -> list[str]:
    """Known to have succeeded and taken back, or neither."""
    found: list[str] = []
    for node in saga.unsure:
        [status] = [row[6] for row in steps if row[5] == node]
        undos = [row[6] for row in steps if row[5] == undo_of(node)]
        if (status, undos) not in UNSURE_ENDS:
            found.append(f"{node} is {status}, its compensation {undos}")
    return found


UNSURE_ENDS: Final = (
    ("rolled_back", ["completed"]),
    ("skipped", []),
    ("cancelled", ["completed"]),  # it lost a race
    ("cancelled", []),
)  # fmt: skip


def _left(connection: psycopg.Connection[Any], ids: list[UUID]) -> list[str]:
    found: list[str] = []
    for table in WAITING:
        [count] = connection.execute(f"select count(*) from holdfast.{table} where instance_id = any(%s)", (ids,))
        if count[0]:
            found.append(f"{count[0]} rows are left in {table}")
    return found


def _replayed(connection: psycopg.Connection[Any], ids: list[UUID]) -> list[str]:
    told = [replayed.difference for id in ids for replayed in replay_all(connection, id)]
    return [f"replay: {difference}" for difference in told if difference is not None]


def _called_twice(entries: list[Entry]) -> list[str]:
    """Every call was counted before it was made, and all calls of a step have one key."""
    attempts = Counter((entry.step_id, entry.attempt) for entry in entries)
    found = [f"attempt {attempt} of {step} was called {count} times" for (step, attempt), count in attempts.items()
             if count > 1]  # fmt: skip
    keys = {(entry.step_id, entry.idempotency_key) for entry in entries}
    if len(keys) > len({step for step, _ in keys}):
        found.append("a step was called under several keys")
    return found


def _undos(steps: list[tuple[Any, ...]]) -> set[str]:
    return {row[5] for row in steps if row[1] == "compensate"}


def _sequence(portrait: Portrait, undos: set[str]) -> list[tuple[str, str]]:
    """In which order compensations began; calls of one in a row are one."""
    return [name for name, _ in groupby((flow, node) for flow, node, _ in portrait.calls if node in undos)]


def _forward_after_backward(portrait: Portrait, undos: set[str]) -> list[str]:
    backwards: set[str] = set()
    found: list[str] = []
    for flow, node, attempt in portrait.calls:
        if node in undos:
            backwards.add(flow)
        elif flow in backwards:
            found.append(f"{node} was called (attempt {attempt}) while the instance went backwards")
    return found


def _calls(known: Portrait, found: Portrait, hidden: set[str], burnt: int) -> list[str]:
    """As many calls of each step as without the fault, but for those that were burnt."""
    expected = Counter((flow, node) for flow, node, _ in known.calls)
    counted = Counter((flow, node) for flow, node, _ in found.calls)
    told = [f"{name} was never called" for name in expected.keys() - counted.keys() if name[1] not in hidden]
    for name, count in counted.items():
        if count > expected[name] + burnt:
            told.append(f"{name} was called {count} times instead of {expected[name]}")
    return told


def _apart(expected: Any, found: Any) -> str:
    if isinstance(expected, dict) and isinstance(found, dict):
        names = sorted(expected.keys() | found.keys())
        return "; ".join(
            f"{n} {expected.get(n)} → {found.get(n)}" for n in names if expected.get(n) != found.get(n)
        )  # fmt: skip
    return f"missing {[x for x in expected if x not in found]}, unexpected {[x for x in found if x not in expected]}"
