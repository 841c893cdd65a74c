"""Decisions become rows: one set-based statement per table, whatever the size of the batch.

Lock order of the store, everywhere: instances (by id) → event keys → work → signals → the rest. The transaction that
holds an instance's row lock is its single writer; pump and recovery never wait for a lock, they skip locked rows. The
statements below are sent in that order and each carries its own guard: the version an update was decided on, the fence
a result was produced under, the open status a close expects. A guard that does not hold raises, and the batch is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.core.model.decision import Dispatch
from holdfast.store.commit.deliveries import (
    Change,
    close_rows,
    latest,
    letter_rows,
    notice_rows,
    promote_rows,
    requeue_rows,
    resolved_rows,
)
from holdfast.store.commit.fast_rows import Rollbacks, advanced, begun, finished, is_plain_rollback, rolled_back, undone
from holdfast.store.commit.needs import KeptEvent
from holdfast.store.commit.rows import Entry, Row, Rows
from holdfast.store.pg.partitions import Month, suited
from holdfast.store.pg.statements import Query
from holdfast.store.queue.work import POINT
from holdfast.store.reads.statistics import Tally, hour_of


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


class SignalReceipt(msgspec.Struct, frozen=True, gc=False):
    """A signal that was applied under an id of its own, and the answer it got, if it was a trigger."""

    instance: bytes
    org: str
    key: str
    digest: bytes  # of what it carried
    answer: bytes | None = None


class Batch(msgspec.Struct, gc=False):
    """The writes of one transaction, before they are rows."""

    now: int
    worker: bytes | None
    leases: Callable[[Dispatch], bool]  # may this step be leased to us?
    entries: list[Entry]
    consumed: list[tuple[bytes, bytes]]  # (instance, signal)
    receipts: list[SignalReceipt]
    kept: list[tuple[bytes, str, KeptEvent]]  # (instance, org, the early event)
    children: list[ChildStart]
    point: int = POINT  # what a point of priority weighs, in microseconds of waiting
    month: Month | None = None  # the one month in which all its steps and events lie, if it is known
    unmade: Sequence[tuple[bytes, int, bytes]] = ()  # (instance, created_at, step) of calls counted but never made
    fast: bool = True  # may rollbacks that begin be written by fast_rows?
    settled: Sequence[Change] = ()  # deliveries that were answered
    over: Sequence[bytes] = ()  # machines that have ended
    watched: Sequence[tuple[bytes, str, float | None]] = ()  # (instance, org, seconds of rest that are told of)


def writes(batch: Batch) -> list[Query]:
    """The statements of the batch, in lock order; the caller adds COMMIT."""
    gathered = _Gathered(batch)
    for entry in batch.entries:
        gathered.add(entry)
    gathered.tally.add(batch.entries)
    return gathered.queries()


class _Gathered:
    """The rows of a batch: plain decisions by `fast_rows.py`, all others by `rows.py`."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.tally = Tally(batch.now)
        self.rows = Rows(ORDER, batch.now, batch.worker, batch.leases, batch.point)
        self.tables = self.rows.tables
        self.rollbacks = Rollbacks()

    def add(self, entry: Entry) -> None:
        """Add the rows of one instance: a single row for a plain decision, the general rows for all others.

        A rollback that begins in the plain way is two decisions and still plain. A dispatch that this worker does not
        lease takes the general rows.
        """
        decision = entry.decisions[0]
        plain = decision.plain
        if len(entry.decisions) > 1 or plain not in _ROWS or not self.batch.worker:
            self._add_unusual(entry)
        elif plain == "finish":
            self.tables["finish_instances"].append(finished(decision))
        elif plain == "undone":
            self.tables["end_rollbacks"].append(rolled_back(decision))
        elif decision.dispatches[0].input is None or not self.batch.leases(decision.dispatches[0]):
            self.rows.add(entry)
        elif plain == "advance":
            self.tables["advance_steps"].append(advanced(decision, entry.before))
        elif plain == "undo":
            self.tables["undo_steps"].append(undone(decision))
        elif entry.new is not None:
            self.tables["begin_instances"].append(begun(decision, entry.new, self.batch.point))
        else:
            self.rows.add(entry)

    def _add_unusual(self, entry: Entry) -> None:
        batch = self.batch
        may_be_plain = batch.fast and batch.worker and entry.new is None
        if may_be_plain and is_plain_rollback(entry.before, entry.decisions, batch.leases):
            self.rollbacks.add(entry.before, *entry.decisions)
        else:
            self.rows.add(entry)

    def queries(self) -> list[Query]:
        batch, tables = self.batch, self.tables
        for instance, signal in batch.consumed:
            tables["delete_signals"].append((instance, instance[15], signal))
        for r in batch.receipts:
            tables["insert_outbox_receipts"].append(
                (r.instance, r.instance[15], "signal", r.key, r.org, r.digest, r.answer)
            )
        for instance, org, e in batch.kept:
            actor = msgspec.json.encode(e.actor)
            tables["keep_events"].append(
                (instance, instance[15], e.id, org, e.event, e.payload, actor, e.kept_at, e.expires_at, e.node)
            )
        for instance, at, step in batch.unmade:
            tables["uncount_calls"].append((instance, instance[15], at, step))
        for c in batch.children:
            self._child(c)
        self._settle(batch.settled)
        tables["release_deliveries"] += [(id, id[15]) for id in batch.over]
        tables["watch_instances"] += [(id, id[15], org, after) for id, org, after in batch.watched]
        tables["move_steps"].extend(self.rows.moved.values())
        tables["insert_statistics"] = self.tally.rows()
        begun = [self.rollbacks.query(batch.now, batch.worker, batch.month)] if self.rollbacks.begun else []
        return [*begun, *(self._bind(name, rows) for name, rows in tables.items() if rows)]

    def _settle(self, settled: Sequence[Change]) -> None:
        if settled:
            tables = self.tables
            last = latest(settled)
            tables["close_deliveries"] += close_rows(last)
            tables["requeue_deliveries"] += requeue_rows(last)
            tables["promote_deliveries"] += promote_rows(last)
            tables["bury_deliveries"] += letter_rows(last)
            tables["resolve_ack_letters"] += resolved_rows(settled)
            tables["insert_notices"] += notice_rows(settled)

    def _child(self, c: ChildStart) -> None:
        self.tables["start_instances"].append(
            (c.id, c.id[15], c.org, c.definition, c.flow, c.flow_version, c.input, None, None, None, c.parent,
             c.parent_token, None, c.trace)
        )  # fmt: skip

    def _bind(self, name: str, rows: list[Row]) -> Query:
        return suited(name, rows, self.batch.month).rows(rows, *ORDER[name](self.batch, rows))


_ROWS: Final = frozenset({"begin", "advance", "finish", "undo", "undone"})  # plain decisions that are a row each

_Scalars = Callable[[Batch, Sequence[Any]], tuple[Any, ...]]

# The written lock order: the statements of a batch are sent in this sequence.
ORDER: Final[dict[str, _Scalars]] = {
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
    "close_deliveries": lambda b, rows: (b.now, len(rows)),
    "insert_acks": lambda b, _: (b.now,),
    "insert_deliveries": lambda b, _: (b.now,),
    "pass_gates": lambda b, _: (b.now,),
    "release_deliveries": lambda b, _: (b.now,),
    "requeue_deliveries": lambda _b, rows: (len(rows),),
    "rearm_deliveries": lambda b, _: (b.now,),
    "promote_deliveries": lambda b, _: (b.now,),
    "bury_deliveries": lambda b, _: (b.now, b.worker),
    "resolve_ack_letters": lambda b, _: (b.now,),
    "insert_notices": lambda b, _: (b.now,),
    "watch_instances": lambda b, _: (b.now,),
    "insert_statistics": lambda b, _: (hour_of(b.now),),
}
