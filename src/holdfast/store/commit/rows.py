"""The outputs of a decision as rows: one table maps each field of `Decision` to its statements.

`OUTPUTS` is the only place that lists the fields: to each belong the statements its rows are for, and the function that
makes them. The place of a statement in the lock order is its place in `ORDER` (`batch.py`). Most outputs are rows of
one decision. The instance, its work and its stops are folded over all decisions of an instance first, because a commit
changes each of these rows once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.core.model.decision import Decision, Dispatch, TaskOpened, TaskRenamed
from holdfast.core.model.ids import bucket_of
from holdfast.core.model.state import Instance, encode_state
from holdfast.core.model.status import TERMINAL
from holdfast.store.commit.deliveries import fact_rows, gate_rows, told_rows
from holdfast.store.queue.work import NOT_TO_START, PAUSED, POINT, TOLD_TO_STOP, ripe_at

Row = tuple[Any, ...]

NEVER: Final = 2**63 - 1  # PostgreSQL's infinity: a task without a due time comes last
_TELL_ERRORS: Final = frozenset({"step_failed", "step_retried", "instance_suspended"})
_STILL_OPEN: Final = (None, None, None, None, None, None, None, None)


class NewInstance(msgspec.Struct, frozen=True, gc=False):
    """The columns of a start that no decision holds, written once."""

    input: bytes
    business_key: str | None = None
    attributes: bytes | None = None
    created_by: str | None = None


class Entry(msgspec.Struct, gc=False):
    """All decisions of one instance in one batch, applied over `before`."""

    before: Instance
    decisions: list[Decision]
    new: NewInstance | None = None


class Rows:
    """Rows by statement, gathered over a batch."""

    def __init__(
        self,
        order: Collection[str],
        now: int,
        worker: bytes | None,
        leases: Callable[[Dispatch], bool],
        point: int = POINT,
    ) -> None:
        self.now = now
        self.worker = worker
        self.leases = leases
        self.point = point  # what a point of priority weighs, in microseconds of waiting
        self.tables: dict[str, list[Row]] = {name: [] for name in order}
        self.uncalled: set[bytes] = set()  # steps that wait for a claim: the claim counts their call
        self.moved: dict[bytes, Row] = {}  # the last status of each step, should it move twice

    def add(self, entry: Entry) -> None:
        """Add the rows of an entry by the general rules, for any output of its decisions."""
        for fold in _FOLDS:
            fold(self, entry)
        before = entry.before
        for decision in entry.decisions:
            for write in compress(_WRITERS, _written(decision)):
                write(self, before, decision)


class Output(NamedTuple):
    """The statements of one field of a decision, and the function that makes their rows."""

    statements: tuple[str, ...]
    write: Callable[[Rows, Instance, Decision], None] | None = None  # rows of one decision
    fold: Callable[[Rows, Entry], None] | None = None  # rows of an instance, over all its decisions


# --- folded over the decisions of an instance -------------------------------------------------------------------


def _instance(rows: Rows, entry: Entry) -> None:
    before, after = entry.before, entry.decisions[-1].instance
    waiting_kind, waiting_until = waiting_of(after)
    completed = rows.now if after.status in TERMINAL else None
    error, error_step = _last_error(entry.decisions)
    state = encode_state(after.state)
    if entry.new is not None:
        new = entry.new
        rows.tables["insert_instances"].append(
            (after.id, after.id[15], after.org, after.definition, after.flow, after.flow_version, after.status,
             after.reason, after.version, state, after.data, new.input, new.business_key, new.attributes,
             new.created_by, after.trace, waiting_kind, waiting_until, error, completed, error_step)
        )  # fmt: skip
        return
    data = None if after.data is before.data or after.data == before.data else after.data
    row = (
        after.id, after.id[15], before.version, after.version, after.status, after.reason, state, data,
        waiting_kind, waiting_until, error, completed, error_step,
        None if after.entity_version == before.entity_version else after.entity_version,
    )  # fmt: skip
    if after.definition == before.definition:
        rows.tables["update_instances"].append(row)
    else:
        rows.tables["migrate_instances"].append((*row, after.definition, after.flow_version))


def _last_error(decisions: Sequence[Decision]) -> tuple[bytes | None, str | None]:
    """The last error in a commit's decisions, and the step it came from."""
    for decision in reversed(decisions):
        if decision.error is not None:
            steps = [event.node for event in decision.events if event.type in _TELL_ERRORS and event.node]
            return decision.error, steps[-1] if steps else None
    return None, None


def waiting_of(after: Instance) -> tuple[str | None, int | None]:
    """Summarise an instance's waits for lists: the kind of the first, and the earliest due time."""
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


class _PathWork(msgspec.Struct, gc=False):
    """The change of one path's work row in a batch: the fence of the row it ends, and the dispatch that replaces it."""

    ends: int = 0
    dropped: bool = False
    dispatch: Dispatch | None = None


def _work(rows: Rows, entry: Entry) -> None:
    """Fold releases and dispatches into at most one change per path: hand off, return, insert, or end."""
    before, decisions = entry.before, entry.decisions
    if len(decisions) == 1 and len(decisions[0].dispatches) == 1 and not decisions[0].released:
        dispatch = decisions[0].dispatches[0]  # a plain step: there is nothing to fold
        _work_row(rows, before, dispatch.path, _PathWork(dispatch.held, False, dispatch))
        return
    work: dict[str, _PathWork] = {}
    for decision in decisions:
        _fold_work(rows, work, decision)
    for path, op in work.items():
        _work_row(rows, before, path, op)


def _fold_work(rows: Rows, work: dict[str, _PathWork], decision: Decision) -> None:
    for r in decision.released:
        op = work.get(r.path)
        if op is None:
            work[r.path] = _PathWork(ends=r.fence, dropped=not r.fence)
        else:
            _take_back(rows, op)
    for d in decision.dispatches:
        op = work.get(d.path)
        if op is None:
            work[d.path] = _PathWork(ends=d.held, dispatch=d)
        else:
            _take_back(rows, op)
            op.dispatch = d


def _take_back(rows: Rows, op: _PathWork) -> None:
    """Withdraw a dispatch of this very batch: its call is not counted."""
    if op.dispatch is not None:
        rows.uncalled.add(op.dispatch.step)
        op.dispatch = None


def _work_row(rows: Rows, before: Instance, path: str, op: _PathWork) -> None:
    tables, d, id = rows.tables, op.dispatch, before.id
    bucket = id[15]
    if d is None:
        if op.ends:
            tables["delete_work"].append((id, bucket, path, op.ends))
        elif op.dropped:
            tables["drop_work"].append((id, bucket, path))
        return
    leased = d.input is not None and rows.leases(d)
    if op.ends and leased:
        tables["hand_off_work"].append((id, bucket, path, op.ends, d.fence, d.step, d.at, d.queue, d.timeout))
        return
    if not leased:
        rows.uncalled.add(d.step)
    ripe = ripe_at(rows.now, d.priority, rows.point)
    if op.ends:
        tables["return_work"].append((id, bucket, path, op.ends, d.fence, d.step, d.at, d.queue, d.timeout, ripe))
        return
    if op.dropped:
        tables["drop_work"].append((id, bucket, path))
    worker = rows.worker if leased else None
    tables["insert_work"].append(
        (id, bucket, path, before.org, d.step, d.at, d.queue, d.timeout, worker, d.fence, ripe)
    )


def stop_work(rows: Rows, entry: Entry) -> None:
    """Move work that is to stop, pause or resume to its queue.

    A release or dispatch in a later decision of the batch ends the move: the path has its result, or new work.
    """
    decisions = entry.decisions
    for d in decisions:
        if d.stops or d.halts or d.paused or d.resumed:
            break
    else:
        return
    queues: dict[str, str] = {}
    for decision in decisions:
        for change in (*decision.released, *decision.dispatches):
            queues.pop(change.path, None)
        queues.update(dict.fromkeys(decision.halts, NOT_TO_START))
        queues.update(dict.fromkeys(decision.stops, TOLD_TO_STOP))
        queues.update(dict.fromkeys(decision.paused, PAUSED))
        queues.update(decision.resumed)
    id = entry.before.id
    rows.tables["stop_work"] += [(id, id[15], path, queue) for path, queue in queues.items()]


# --- of one decision ----------------------------------------------------------------------------------------------


def _closed(rows: Rows, before: Instance, decision: Decision) -> None:
    id, actor, close_steps = before.id, _actor(decision), rows.tables["close_steps"]
    bucket = id[15]
    for s in decision.closed:
        close_steps.append(
            (id, bucket, s.at, s.id, s.status, s.outcome, s.chosen, s.output, s.error, s.closing, s.version, s.ordinal,
             actor)
        )  # fmt: skip


def _opened(rows: Rows, before: Instance, decision: Decision) -> None:
    id, org, actor, uncalled = before.id, before.org, _actor(decision), rows.uncalled
    entity_version = decision.instance.entity_version
    bucket, open_steps, insert_receipts = id[15], rows.tables["open_steps"], rows.tables["insert_receipts"]
    for s in decision.opened:
        ended = (
            (s.status, s.chosen, s.output, s.error, s.closing, s.version, s.ordinal, actor) if s.closed else _STILL_OPEN
        )
        open_steps.append(
            (id, bucket, s.id, org, s.node, s.behaviour, s.path, s.hop, s.kind, s.run, entity_version, s.key,
             s.version, s.ordinal, actor, s.cause, s.status, s.input, s.detail,
             s.calls - 1 if s.id in uncalled else s.calls, s.fence, *ended)
        )  # fmt: skip
        insert_receipts.append((id, bucket, s.token, s.kind, s.run, org, s.key, s.id))


def _events(rows: Rows, before: Instance, decision: Decision) -> None:
    id, org, insert_events = before.id, before.org, rows.tables["insert_events"]
    bucket = id[15]
    for e in decision.events:
        insert_events.append((id, bucket, org, e.version, e.ordinal, e.type, e.node, e.token, e.actor, e.detail))


def _retried(rows: Rows, before: Instance, decision: Decision) -> None:
    for r in decision.retried:
        calls = r.calls - 1 if r.id in rows.uncalled else r.calls
        rows.tables["retry_steps"].append((before.id, before.id[15], r.at, r.id, calls, r.fence, r.error))


def _superseded(rows: Rows, before: Instance, decision: Decision) -> None:
    for step, at in decision.superseded:
        rows.tables["supersede_steps"].append((before.id, before.id[15], at, step))


def _moved(rows: Rows, before: Instance, decision: Decision) -> None:
    """Change a step's status after its end; the last change of a batch wins."""
    for m in decision.moved:
        rows.moved[m.id] = (before.id, before.id[15], m.at, m.id, m.status)


def _timers(rows: Rows, before: Instance, decision: Decision) -> None:
    for t in decision.timers:
        payload = msgspec.json.encode({"path": t.path})
        rows.tables["insert_timers"].append(
            (before.id, before.id[15], t.id, before.org, t.purpose, t.wait, payload, t.due)
        )


def _timers_ended(rows: Rows, before: Instance, decision: Decision) -> None:
    for timer in decision.timers_ended:
        rows.tables["delete_timers"].append((before.id, before.id[15], timer))


def _effects(rows: Rows, before: Instance, decision: Decision) -> None:
    id, org = before.id, before.org
    for f in decision.effects:
        rows.tables["insert_effects"].append(
            (id, id[15], f.id, org, f.step, f.token, f.type, f.payload, f.key, f.awaited, before.trace)
        )
        rows.tables["insert_outbox_receipts"].append((id, id[15], "effect", f.key, org, None, None))


def _key_waits(rows: Rows, before: Instance, decision: Decision) -> None:
    id, org = before.id, before.org
    for w in decision.key_waits:
        rows.tables["insert_key_waits"].append(
            (org, w.event, w.key, id, w.token, bucket_of(org, w.key), id[15], w.step)
        )


def _key_waits_ended(rows: Rows, before: Instance, decision: Decision) -> None:
    for w in decision.key_waits_ended:
        rows.tables["delete_key_waits"].append(
            (before.org, w.event, w.key, before.id, w.token, bucket_of(before.org, w.key))
        )


def _outgoing(rows: Rows, before: Instance, decision: Decision) -> None:
    for o in decision.outgoing:
        rows.tables["insert_signals"].append(
            (o.instance, o.instance[15], o.id, before.org, o.kind, o.payload, before.trace)
        )


def _tasks(rows: Rows, before: Instance, decision: Decision) -> None:
    id, actor, tables = before.id, _actor(decision), rows.tables
    bucket = id[15]
    for task in decision.tasks:
        if isinstance(task, TaskOpened):
            roles = msgspec.json.encode(list(dict.fromkeys(task.roles)))
            due = NEVER if task.due is None else task.due
            tables["insert_tasks"].append(
                (id, bucket, task.id, before.org, task.step, before.flow, task.node, task.token, roles,
                 100 - task.priority, due, task.form, task.payload, actor, task.assignee)
            )  # fmt: skip
        elif isinstance(task, TaskRenamed):
            tables["rename_tasks"].append((id, bucket, task.id, task.was, task.now, actor))
        else:
            tables["close_tasks"].append(
                (id, bucket, task.id, task.status, task.decision, task.reason, task.comment, task.data, actor)
            )


def _letters(rows: Rows, before: Instance, decision: Decision) -> None:
    id = before.id
    for x in decision.letters:
        rows.tables["insert_letters"].append(
            (id, id[15], x.id, before.org, x.source, before.flow, before.flow_version, x.step, x.at, x.path, x.token,
             x.node, x.behaviour, x.input, x.reason, x.error, x.calls)
        )  # fmt: skip


def _letters_resolved(rows: Rows, before: Instance, decision: Decision) -> None:
    for a in decision.letters_resolved:
        rows.tables["resolve_letters"].append((before.id, before.id[15], a.step, a.resolution, a.by, a.why))


def _facts(rows: Rows, before: Instance, decision: Decision) -> None:
    if decision.facts:
        acks, deliveries = fact_rows(before, decision.instance.version, decision.facts)
        rows.tables["insert_acks"] += acks
        rows.tables["insert_deliveries"] += deliveries
        rows.tables["pass_gates"] += gate_rows(decision)


def _notices(rows: Rows, before: Instance, decision: Decision) -> None:
    if decision.notices:
        told = told_rows(before, decision.instance.version, rows.now, decision.notices)
        rows.tables["insert_notices"] += told


def _rearms(rows: Rows, before: Instance, decision: Decision) -> None:
    if decision.rearms:
        rows.tables["rearm_deliveries"].append((before.id, before.id[15]))
        all_of_it = before.id, before.id[15], None, None
        rows.tables["resolve_ack_letters"].append((*all_of_it, "replayed", _actor(decision), "resumed"))


def _actor(decision: Decision) -> str:
    return decision.events[0].actor if decision.events else "system"


# --- the table ------------------------------------------------------------------------------------------------------

_INSTANCE: Final = Output(("insert_instances", "update_instances", "migrate_instances"), fold=_instance)
_WORK: Final = Output(("delete_work", "drop_work", "hand_off_work", "return_work", "insert_work"), fold=_work)
_STOPS: Final = Output(("stop_work",), fold=stop_work)
_NO_ROWS: Final = Output(())

OUTPUTS: Final[dict[str, Output]] = {
    "instance": _INSTANCE,
    "error": _INSTANCE,
    "dispatches": _WORK,
    "released": _WORK,
    "stops": _STOPS,
    "halts": _STOPS,
    "paused": _STOPS,
    "resumed": _STOPS,
    "closed": Output(("close_steps",), _closed),
    "opened": Output(("open_steps", "insert_receipts"), _opened),
    "events": Output(("insert_events",), _events),
    "retried": Output(("retry_steps",), _retried),
    "superseded": Output(("supersede_steps",), _superseded),
    "moved": Output(("move_steps",), _moved),
    "timers": Output(("insert_timers",), _timers),
    "timers_ended": Output(("delete_timers",), _timers_ended),
    "effects": Output(("insert_effects", "insert_outbox_receipts"), _effects),
    "key_waits": Output(("insert_key_waits",), _key_waits),
    "key_waits_ended": Output(("delete_key_waits",), _key_waits_ended),
    "outgoing": Output(("insert_signals",), _outgoing),
    "tasks": Output(("insert_tasks", "rename_tasks", "close_tasks"), _tasks),
    "letters": Output(("insert_letters",), _letters),
    "letters_resolved": Output(("resolve_letters",), _letters_resolved),
    "children": Output(("start_instances",)),  # rows of the batch: only the shell knows the definition
    "keep": Output(("keep_events",)),  # rows of the batch: only the shell has the event
    "facts": Output(("insert_acks", "insert_deliveries", "pass_gates"), _facts),
    "notices": Output(("insert_notices",), _notices),
    "rearms": Output(("rearm_deliveries", "resolve_ack_letters"), _rearms),
    "answer": Output(("insert_outbox_receipts",)),  # rows of the batch: it stands with the receipt
    "needs": _NO_ROWS,  # read before the batch is written
    "plain": _NO_ROWS,
}

_FOLDS: Final = tuple(dict.fromkeys(output.fold for output in OUTPUTS.values() if output.fold is not None))
_WRITERS: Final = tuple(output.write for output in OUTPUTS.values() if output.write is not None)
_written: Final = attrgetter(*(name for name, output in OUTPUTS.items() if output.write is not None))


def outputs_beside(*names: str) -> Callable[[Decision], tuple[Any, ...]]:
    """Build a reader of every output of a decision, except these and those without rows."""
    return attrgetter(*(name for name, output in OUTPUTS.items() if output.statements and name not in names))
