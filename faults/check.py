"""The invariants, judged after a run from the database and the witness together.

`judge` answers a `Verdict`: how many there were of everything, and the violations found, each a sentence. `History` is
taken during the run: what was once written as a receipt or as the end of a step must never change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import psycopg

from faults.replayed import replay_all
from faults.sink import Entry
from holdfast.core.model.status import TERMINAL

RECEIPTS = "select instance_id, token, kind, run, key, step_id, created_at from holdfast.step_receipts"
CLOSED = """
select id, status, outcome, md5(output::text), closed_version, closed_ordinal, fence
from holdfast.steps where closed_at is not null
"""
TWICE = """
select instance_id, path, hop, kind, run, count(*) from holdfast.steps where kind <> 'control'
group by 1, 2, 3, 4, 5 having count(*) > 1
"""
WITHOUT_RECEIPT = """
select s.instance_id, s.node from holdfast.steps s where s.kind <> 'control' and not exists (
    select from holdfast.step_receipts r
    where r.instance_id = s.instance_id and r.token = s.path || '@' || s.hop and r.kind = s.kind and r.run = s.run
        and r.step_id = s.id)
"""
WITHOUT_STEP = """
select r.instance_id, r.token from holdfast.step_receipts r where not exists (
    select from holdfast.steps s where s.instance_id = r.instance_id and s.id = r.step_id)
"""
LEFT_OVER = ("work", "signals", "timers", "key_waits", "inbox")


@dataclass
class Verdict:
    """`counts` are the denominators; `violations` go by the invariant they break."""

    counts: dict[str, int] = field(default_factory=dict)
    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def blame(self, invariant: str, sentence: str) -> None:
        self.violations[invariant].append(sentence)

    def broken(self, *invariants: str) -> int:
        """How many violations of these, or of all."""
        return sum(len(self.violations.get(name, ())) for name in invariants or tuple(self.violations))

    def report(self, most: int = 10) -> str:
        told = [f"{name}: {text}" for name, found in self.violations.items() for text in found[:most]]
        return "\n".join(told)

    @property
    def share_finished(self) -> float:
        return self.counts["finished"] / max(1, self.counts["instances"])


class History:
    """What has been seen written, look after look: receipts and the ends of steps. Any later difference is recorded."""

    def __init__(self) -> None:
        self._receipts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._closed: dict[Any, tuple[Any, ...]] = {}
        self.changes: list[str] = []
        self.looks = 0

    def look(self, dsn: str) -> None:
        self.looks += 1
        with psycopg.connect(dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            receipts = {row[:4]: row[4:] for row in connection.execute(RECEIPTS)}
            closed = {row[0]: row[1:] for row in connection.execute(CLOSED)}
        self._compare("receipt", self._receipts, receipts)
        self._compare("end of step", self._closed, closed)
        self._receipts, self._closed = receipts, closed

    def _compare(self, what: str, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        for key, value in before.items():
            if after.get(key) != value:
                self.changes.append(f"{what} {key} was {value} and became {after.get(key)}")

    @property
    def size(self) -> int:
        return len(self._receipts)


def judge(
    dsn: str,
    entries: list[Entry],
    *,
    history: History | None = None,
    started: dict[str, str] | None = None,
    left_over: tuple[str, ...] = LEFT_OVER,
    ends: Collection[str] = ("completed",),
    letters: bool = False,
) -> Verdict:
    """All invariants. `started` maps keys to the instances that callers were told of, `ends` are the ends instances may
    come to, `letters` says whether dead letters may be left."""
    verdict = Verdict()
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        _nothing_lost(connection, verdict, started or {}, ends)
        _one_receipt(connection, verdict)
        _nothing_left(connection, verdict, left_over)
        if not letters:
            _no_letters(connection, verdict)
        _replay_equal(connection, verdict)
        _witnessed(connection, verdict, entries)
        _delivered(connection, verdict, entries)
    if history is not None:
        history.look(dsn)
        for change in history.changes:
            verdict.blame("overwritten", change)
    return verdict


def _nothing_lost(
    connection: psycopg.Connection, verdict: Verdict, started: dict[str, str], ends: Collection[str]
) -> None:
    """I1: every accepted start is there and has come to its end."""
    found = {str(id): status for id, status in connection.execute("select id, status from holdfast.instances")}
    verdict.counts["instances"] = len(found)
    verdict.counts["finished"] = sum(status in TERMINAL for status in found.values())
    for id, status in found.items():
        if status not in ends:
            verdict.blame("lost", f"instance {id} is {status}")
    for key, id in started.items():
        if id not in found:
            verdict.blame("lost", f"the start {key} was accepted as {id}, which is not there")


def _one_receipt(connection: psycopg.Connection, verdict: Verdict) -> None:
    """I2: one row and one receipt per visit, and no receipt without a row."""
    row = connection.execute("select count(*) from holdfast.step_receipts").fetchone()
    verdict.counts["receipts"] = row[0] if row else 0
    for instance, path, hop, kind, run, count in connection.execute(TWICE):
        verdict.blame("receipts", f"{instance} visited {path}@{hop} ({kind}, run {run}) {count} times")
    for instance, node in connection.execute(WITHOUT_RECEIPT):
        verdict.blame("receipts", f"{instance} has a step {node} without a receipt")
    for instance, token in connection.execute(WITHOUT_STEP):
        verdict.blame("receipts", f"{instance} has a receipt for {token} without a step")


def _nothing_left(connection: psycopg.Connection, verdict: Verdict, tables: tuple[str, ...]) -> None:
    """I11: once everything is over, nothing waits for anybody."""
    for table in tables:
        row = connection.execute(f"select count(*) from holdfast.{table}").fetchone()
        if row and row[0]:
            verdict.blame("left over", f"{row[0]} rows in {table}")


def _no_letters(connection: psycopg.Connection, verdict: Verdict) -> None:
    letters = connection.execute("select instance_id, reason from holdfast.dead_letters where resolved_at is null")
    for instance, reason in letters:
        verdict.blame("left over", f"dead letter of {instance}: {reason}")


def _replay_equal(connection: psycopg.Connection, verdict: Verdict) -> None:
    """I9: the step rows alone tell what the stored snapshot tells."""
    verdict.counts["steps"] = verdict.counts["replayed"] = 0
    for replayed in replay_all(connection):
        verdict.counts["steps"] += replayed.steps
        verdict.counts["replayed"] += 1
        if replayed.difference is not None:
            verdict.blame("replay", f"{replayed.instance}: {replayed.difference}")


def _witnessed(connection: psycopg.Connection, verdict: Verdict, entries: list[Entry]) -> None:
    """I3, I4: nothing happened outside without a committed cause, every result was witnessed, one key per step, and
    the result that was recorded is that of the last lease."""
    by_step: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "call":
            by_step[entry.step_id].append(entry)
    verdict.counts["effects"] = len(entries)
    verdict.counts["repeated effects"] = len(entries) - len({(e.kind, e.step_id) for e in entries})
    found = connection.execute(
        "select id::text, instance_id::text, node, status, output ->> 'result', fence from holdfast.steps"
        " where behaviour = 'work'"
    ).fetchall()
    known = {row[0] for row in found}
    for step in by_step.keys() - known:
        verdict.blame("witness", f"step {step} was called and is not in the database")
    for id, instance, node, status, result, fence in found:
        seen = by_step.get(id, [])
        if len({(e.idempotency_key, e.payload_hash) for e in seen}) > 1:
            verdict.blame("witness", f"{node} of {instance} was called with several keys or payloads")
        if status != "completed" and result is None:  # a result stays with a step that was taken back
            continue
        if not seen:
            verdict.blame("witness", f"{node} of {instance} is completed and the witness never saw it")
        elif not any(e.result == result for e in seen):
            verdict.blame("witness", f"{node} of {instance} recorded a result that no call gave")
        elif not any(e.result == result and e.fence == fence for e in seen):
            verdict.blame("stale", f"{node} of {instance} recorded the result of another lease than its last")


def _delivered(connection: psycopg.Connection, verdict: Verdict, entries: list[Entry]) -> None:
    """I5: every effect in the outbox reached the outside world under its one key, and nothing else did."""
    by_key: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.kind == "effect":
            by_key[entry.idempotency_key].add(entry.payload_hash)
    found = dict(connection.execute("select key, status from holdfast.effects").fetchall())
    verdict.counts["outbox"] = len(found)
    for key, status in found.items():
        if status != "completed" or key not in by_key:
            verdict.blame("witness", f"effect {key} is {status}, delivered: {key in by_key}")
        elif len(by_key[key]) > 1:
            verdict.blame("witness", f"effect {key} was delivered with several payloads")
    for key in by_key.keys() - found.keys():
        verdict.blame("witness", f"effect {key} was delivered and is not in the database")


# --- what must not begin --------------------------------------------------------------------------------------------

HINTED = 0.5  # seconds for a hint to reach a worker that is about to begin, and for its call to reach the witness
UNDO = "un_"


@dataclass(frozen=True)
class Pause:
    """From the answer of a suspend to the sending of the resume."""

    instance: str
    answered: float
    resumed: float


def forward_after_undo(entries: list[Entry]) -> list[str]:
    """Forward calls that the witness saw after the first compensation of their instance, which is named `un_…`."""
    first: dict[str, float] = {}
    for entry in entries:
        if entry.step.startswith(UNDO):
            first[entry.instance] = min(entry.t, first.get(entry.instance, entry.t))
    return [
        f"{e.step} of {e.instance}, attempt {e.attempt}, began {e.t - first[e.instance]:.3f} s after a compensation"
        for e in entries
        if e.kind == "call" and not e.step.startswith(UNDO) and e.t > first.get(e.instance, e.t)
    ]


def begun_while_suspended(entries: list[Entry], pauses: list[Pause]) -> list[str]:
    by_instance: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "call":
            by_instance[entry.instance].append(entry)
    return [
        f"{e.step} of {e.instance}, attempt {e.attempt}, began {e.t - pause.answered:.3f} s after its suspend"
        for pause in pauses
        for e in by_instance[pause.instance]
        if pause.answered + HINTED < e.t < pause.resumed
    ]
