"""Decisions become rows: one set-based statement per table, whatever the size of the batch.

Lock order of the store, everywhere: instances (by id) → event keys → work → signals → the rest. Whoever holds an
instance's row lock is its single writer; pump and recovery never wait for a lock, they skip what is taken. The
statements below are sent in that order and each carries its own guard: the version an update was decided on, the fence
a result was produced under, the open status a close expects. A guard that does not hold raises and the batch is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core.decision import Decision, Dispatch
from holdfast.core.ids import bucket_of
from holdfast.core.state import Instance, encode_state
from holdfast.core.status import TERMINAL
from holdfast.store.months import Month, suited
from holdfast.store.needs import KeptEvent
from holdfast.store.plain import POINT, NewInstance, advanced, begun, finished, ripe_at, rolled_back, undone
from holdfast.store.rollbacks import Rollbacks, is_plain_rollback
from holdfast.store.statements import Query
from holdfast.store.statistics import Tally, hour_of
from holdfast.store.stops import add_stops
from holdfast.store.tasks import add_tasks


class Entry(msgspec.Struct, gc=False):
    """All decisions of one instance in one batch, applied over `before`."""

    before: Instance
    decisions: list[Decision]
    new: NewInstance | None = None


class ChildStart(msgspec.Struct, frozen=True, gc=False):
    """A sub-flow resolved to a definition."""

    id: bytes
    org: str
    definition: bytes
    flow: str
    flow_version: int
    input: bytes
    parent: bytes
    parent_token: str
    trace: str | None


class _Work(msgspec.Struct, gc=False):
    """What a batch does to the work row of one path: which row it ends, and what it dispatches instead."""

    ends: int = 0
    dropped: bool = False
    dispatch: Dispatch | None = None


class Batch(msgspec.Struct, gc=False):
    """Everything one transaction writes."""

    now: int
    worker: bytes | None
    leases: Callable[[Dispatch], bool]  # may this step be leased to us?
    entries: list[Entry]
    consumed: list[tuple[bytes, bytes]]  # (instance, signal)
    receipts: list[tuple[bytes, str, str, bytes]]  # (instance, org, signal id, hash of what it carried)
    kept: list[tuple[bytes, str, KeptEvent]]  # (instance, org, the early event)
    children: list[ChildStart]
    point: int = POINT  # what a point of priority weighs, in microseconds of waiting
    month: Month | None = None  # where it lies, if that is one month of which we know
    unmade: Sequence[tuple[bytes, int, bytes]] = ()  # (instance, created_at, step) of calls that were counted in vain


def writes(batch: Batch) -> list[Query]:
    """Every write of the batch, in lock order; COMMIT is the caller's."""
    rows = _Rows(batch)
    for entry in batch.entries:
        rows.add(entry)
    rows.tally.add(batch.entries)
    return rows.queries()


class _Rows:
    """Rows by table, gathered over the batch."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.tally = Tally(batch.now)
        self.uncalled: set[bytes] = set()  # steps that wait for a claim: it is the claim that counts their call
        self.moved: dict[bytes, tuple[Any, ...]] = {}  # where a step's status ends up, should it move twice
        self.rollbacks = Rollbacks()
        self.tables: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _ORDER}

    def add(self, entry: Entry) -> None:
        """Most plain decisions are a row of one statement, the turn of a rollback is two; what is unusual, or not to be
        run here, goes the long way."""
        decision = entry.decisions[0]
        plain = decision.plain
        if len(entry.decisions) > 1 or plain not in _ROWS or not self.batch.worker:
            self._add_unusual(entry)
        elif plain == "finish":
            self.tables["finish_instances"].append(finished(decision))
        elif plain == "undone":
            self.tables["end_rollbacks"].append(rolled_back(decision))
        elif decision.dispatches[0].input is None or not self.batch.leases(decision.dispatches[0]):
            self._add_at_length(entry)
        elif plain == "advance":
            self.tables["advance_steps"].append(advanced(decision, entry.before))
        elif plain == "undo":
            self.tables["undo_steps"].append(undone(decision))
        elif entry.new is not None:
            self.tables["begin_instances"].append(begun(decision, entry.new, self.batch.point))
        else:
            self._add_at_length(entry)

    def _add_unusual(self, entry: Entry) -> None:
        batch = self.batch
        if batch.worker and entry.new is None and is_plain_rollback(entry.before, entry.decisions, batch.leases):
            self.rollbacks.add(entry.before, *entry.decisions)
        else:
            self._add_at_length(entry)

    def _add_at_length(self, entry: Entry) -> None:
        before, after = entry.before, entry.decisions[-1].instance
        self._instance(entry, before, after)
        id, bucket, org = before.id, before.id[15], before.org
        tables = self.tables
        self._work_of(entry, id, bucket, org)
        if any(decision.stops or decision.halts for decision in entry.decisions):
            add_stops(tables["stop_work"], id, entry.decisions)
        uncalled = self.uncalled
        for decision in entry.decisions:
            version_actor = decision.events[0].actor if decision.events else "system"
            for s in decision.closed:
                tables["close_steps"].append(
                    (id, bucket, s.at, s.id, s.status, s.outcome, s.chosen, s.output, s.error, s.closing, s.version,
                     s.ordinal, version_actor)
                )  # fmt: skip
            for s in decision.opened:
                ended = (
                    (s.status, s.chosen, s.output, s.error, s.closing, s.version, s.ordinal, version_actor)
                    if s.closed
                    else _STILL_OPEN
                )
                tables["open_steps"].append(
                    (id, bucket, s.id, org, s.node, s.behaviour, s.path, s.hop, s.kind, s.run, before.entity_version,
                     s.key, s.version, s.ordinal, version_actor, s.cause, s.status, s.input, s.detail,
                     s.calls - 1 if s.id in uncalled else s.calls, s.fence, *ended)
                )  # fmt: skip
                tables["insert_receipts"].append((id, bucket, s.token, s.kind, s.run, org, s.key, s.id))
            for e in decision.events:
                tables["insert_events"].append(
                    (id, bucket, org, e.version, e.ordinal, e.type, e.node, e.token, e.actor, e.detail)
                )
            if _is_unusual(decision):
                self._seldom(decision, before, id, bucket, org)

    def _instance(self, entry: Entry, before: Instance, after: Instance) -> None:
        last = entry.decisions[-1]
        waiting_kind, waiting_until = waiting_of(after)
        completed = self.batch.now if after.status in TERMINAL else None
        error = last.error
        if error is None and len(entry.decisions) > 1:
            error = next((d.error for d in reversed(entry.decisions) if d.error is not None), None)
        state = encode_state(after.state)
        if entry.new is not None:
            new = entry.new
            self.tables["insert_instances"].append(
                (after.id, after.id[15], after.org, after.definition, after.flow, after.flow_version, after.status,
                 after.reason, after.version, state, after.data, new.input, new.business_key, new.attributes,
                 new.created_by, after.trace, waiting_kind, waiting_until, error, completed)
            )  # fmt: skip
            return
        data = None if after.data is before.data or after.data == before.data else after.data
        row = (
            after.id, after.id[15], before.version, last.instance.version, after.status, after.reason, state, data,
            waiting_kind, waiting_until, error, completed,
        )  # fmt: skip
        if after.definition == before.definition:
            self.tables["update_instances"].append(row)
        else:
            self.tables["migrate_instances"].append((*row, after.definition, after.flow_version))

    def _work_of(self, entry: Entry, id: bytes, bucket: int, org: str) -> None:
        decisions = entry.decisions
        if len(decisions) == 1 and len(decisions[0].dispatches) == 1 and not decisions[0].released:
            dispatch = decisions[0].dispatches[0]  # a plain step: there is nothing to fold
            self._work_row(id, bucket, org, dispatch.path, _Work(dispatch.held, False, dispatch))
            return
        work: dict[str, _Work] = {}
        for decision in decisions:
            self._work(work, decision)
        for path, op in work.items():
            self._work_row(id, bucket, org, path, op)

    def _work(self, work: dict[str, _Work], decision: Decision) -> None:
        """Fold releases and dispatches of one instance into at most one change per path."""
        for r in decision.released:
            op = work.get(r.path)
            if op is None:
                work[r.path] = _Work(ends=r.fence, dropped=not r.fence)
            else:
                self._take_back(op)
        for d in decision.dispatches:
            op = work.get(d.path)
            if op is None:
                work[d.path] = _Work(ends=d.held, dispatch=d)
            else:
                self._take_back(op)
                op.dispatch = d

    def _take_back(self, op: _Work) -> None:
        """What this very batch dispatched is not to be done after all."""
        if op.dispatch is not None:
            self.uncalled.add(op.dispatch.step)
            op.dispatch = None

    def _work_row(self, id: bytes, bucket: int, org: str, path: str, op: _Work) -> None:
        """Hand off, hand back, insert, or end: what becomes of the token's work row."""
        tables, d = self.tables, op.dispatch
        if d is None:
            if op.ends:
                tables["delete_work"].append((id, bucket, path, op.ends))
            elif op.dropped:
                tables["drop_work"].append((id, bucket, path))
            return
        leased = d.input is not None and self.batch.leases(d)
        if op.ends and leased:
            tables["hand_off_work"].append((id, bucket, path, op.ends, d.fence, d.step, d.at, d.queue, d.timeout))
            return
        if not leased:
            self.uncalled.add(d.step)
        ripe = ripe_at(self.batch.now, d.priority, self.batch.point)
        if op.ends:
            tables["return_work"].append((id, bucket, path, op.ends, d.fence, d.step, d.at, d.queue, d.timeout, ripe))
            return
        if op.dropped:
            tables["drop_work"].append((id, bucket, path))
        worker = self.batch.worker if leased else None
        tables["insert_work"].append((id, bucket, path, org, d.step, d.at, d.queue, d.timeout, worker, d.fence, ripe))

    def _seldom(self, decision: Decision, before: Instance, id: bytes, bucket: int, org: str) -> None:
        """Tables a plain step does not touch."""
        tables = self.tables
        for r in decision.retried:
            calls = r.calls - 1 if r.id in self.uncalled else r.calls
            tables["retry_steps"].append((id, bucket, r.at, r.id, calls, r.fence, r.error))
        for step, at in decision.superseded:
            tables["supersede_steps"].append((id, bucket, at, step))
        for t in decision.timers:
            payload = msgspec.json.encode({"path": t.path})
            tables["insert_timers"].append((id, bucket, t.id, org, t.purpose, t.wait, payload, t.due))
        for timer in decision.timers_ended:
            tables["delete_timers"].append((id, bucket, timer))
        for f in decision.effects:
            tables["insert_effects"].append(
                (id, bucket, f.id, org, f.step, f.token, f.type, f.payload, f.key, f.awaited, before.trace)
            )
            tables["insert_outbox_receipts"].append((id, bucket, "effect", f.key, org, None))
        for w in decision.key_waits:
            home = bucket_of(org, w.key)
            tables["insert_key_waits"].append((org, w.event, w.key, id, w.token, home, bucket, w.step))
        for w in decision.key_waits_ended:
            tables["delete_key_waits"].append((org, w.event, w.key, id, w.token, bucket_of(org, w.key)))
        for o in decision.outgoing:
            tables["insert_signals"].append((o.instance, o.instance[15], o.id, org, o.kind, o.payload, before.trace))
        if decision.tasks:
            add_tasks(tables, decision, before)
        if decision.moved or decision.letters or decision.letters_resolved:
            self._taken_back(decision, before, id, bucket, org)

    def _taken_back(self, decision: Decision, before: Instance, id: bytes, bucket: int, org: str) -> None:
        """Steps whose status moves on after their end, and what a person must see to."""
        tables = self.tables
        for m in decision.moved:
            self.moved[m.id] = (id, bucket, m.at, m.id, m.status)
        for x in decision.letters:
            tables["insert_letters"].append(
                (id, bucket, x.id, org, x.source, before.flow, before.flow_version, x.step, x.at, x.path, x.token,
                 x.node, x.behaviour, x.input, x.reason, x.error, x.calls)
            )  # fmt: skip
        for a in decision.letters_resolved:
            tables["resolve_letters"].append((id, bucket, a.step, a.resolution, a.by, a.why))

    def queries(self) -> list[Query]:
        batch, tables = self.batch, self.tables
        for instance, signal in batch.consumed:
            tables["delete_signals"].append((instance, instance[15], signal))
        for instance, org, key, digest in batch.receipts:
            tables["insert_outbox_receipts"].append((instance, instance[15], "signal", key, org, digest))
        for instance, org, e in batch.kept:
            actor = msgspec.json.encode(e.actor)
            tables["keep_events"].append(
                (instance, instance[15], e.id, org, e.event, e.payload, actor, e.kept_at, e.expires_at)
            )
        for instance, at, step in batch.unmade:
            tables["uncount_calls"].append((instance, instance[15], at, step))
        for c in batch.children:
            self._child(c)
        tables["move_steps"].extend(self.moved.values())
        tables["insert_statistics"] = self.tally.rows()
        begun = [self.rollbacks.query(batch.now, batch.worker, batch.month)] if self.rollbacks.begun else []
        return [*begun, *(self._bind(name, rows) for name, rows in tables.items() if rows)]

    def _child(self, c: ChildStart) -> None:
        self.tables["start_instances"].append(
            (c.id, c.id[15], c.org, c.definition, c.flow, c.flow_version, c.input, None, None, None, c.parent,
             c.parent_token, None, c.trace)
        )  # fmt: skip

    def _bind(self, name: str, rows: list[tuple[Any, ...]]) -> Query:
        return suited(name, rows, self.batch.month).rows(rows, *_ORDER[name](self.batch, rows))


_ROWS: Final = frozenset({"begin", "advance", "finish", "undo", "undone"})  # plain decisions that are a row each
_STILL_OPEN: Final = (None, None, None, None, None, None, None, None)

_Scalars = Callable[[Batch, Sequence[Any]], tuple[Any, ...]]

# The written lock order: the statements of a batch are sent in this sequence.
_ORDER: Final[dict[str, _Scalars]] = {
    "begin_instances": lambda b, _: (b.now, b.worker),
    "advance_steps": lambda b, rows: (b.now, b.worker, len(rows)),
    "finish_instances": lambda b, rows: (b.now, b.worker, len(rows)),
    "undo_steps": lambda b, rows: (b.now, b.worker, len(rows)),
    "end_rollbacks": lambda b, rows: (b.now, b.worker, len(rows)),
    "insert_instances": lambda b, _: (b.now, b.worker),
    "update_instances": lambda b, rows: (b.now, b.worker, len(rows)),
    "migrate_instances": lambda b, rows: (b.now, b.worker, len(rows)),
    "start_instances": lambda b, _: (b.now,),
    "delete_work": lambda b, rows: (b.worker, len(rows)),
    "drop_work": lambda _b, _: (),
    "hand_off_work": lambda b, rows: (b.now, b.worker, len(rows)),
    "return_work": lambda b, rows: (b.worker, len(rows)),
    "insert_work": lambda b, _: (b.now,),
    "stop_work": lambda _b, _: (),
    "delete_signals": lambda _b, rows: (len(rows),),
    "insert_signals": lambda b, _: (b.now,),
    "insert_receipts": lambda b, _: (b.now,),
    "open_steps": lambda b, _: (b.now,),  # a step may open, be retried and close in one batch
    "retry_steps": lambda _b, rows: (len(rows),),
    "close_steps": lambda b, rows: (b.now, len(rows)),
    "move_steps": lambda _b, rows: (len(rows),),
    "supersede_steps": lambda _b, rows: (len(rows),),
    "uncount_calls": lambda _b, rows: (len(rows),),
    "resolve_letters": lambda b, _: (b.now,),
    "insert_letters": lambda b, _: (b.now, b.worker),
    "insert_events": lambda b, _: (b.now,),
    "insert_timers": lambda b, _: (b.now,),
    "delete_timers": lambda _b, _: (),
    "insert_outbox_receipts": lambda b, _: (b.now,),
    "insert_effects": lambda b, _: (b.now,),
    "keep_events": lambda _b, _: (),
    "insert_key_waits": lambda b, _: (b.now,),
    "delete_key_waits": lambda _b, _: (),
    "insert_tasks": lambda b, _: (b.now,),
    "rename_tasks": lambda b, rows: (b.now, len(rows)),
    "close_tasks": lambda b, rows: (b.now, len(rows)),
    "insert_statistics": lambda b, _: (hour_of(b.now),),
}


def _is_unusual(d: Decision) -> bool:
    return bool(
        d.retried or d.superseded or d.timers or d.timers_ended or d.effects or d.key_waits or d.key_waits_ended
        or d.outgoing or d.tasks or d.moved or d.letters or d.letters_resolved
    )  # fmt: skip


def waiting_of(after: Instance) -> tuple[str | None, int | None]:
    """The summary a list shows: what kind of thing the instance waits for, and until when."""
    kind: str | None = None
    until: int | None = None
    for token in after.state.tokens.values():
        for wait in token.waits:
            kind = kind or wait.kind
            if wait.due is not None and (until is None or wait.due < until):
                until = wait.due
        if kind is None and token.phase == "resting":
            kind = "event"
    return kind, until
