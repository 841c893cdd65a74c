"""The one function of the kernel: a graph, an instance, a signal and the facts in; a decision out.

Nothing here reads a clock, draws a random number or touches the world, so a decision can be computed again at any time
(a batch that must be retried, a replay, a test by the hundred thousand) and is always the same. An illegal signal is an
error and changes nothing; a stale one — it names a wait or a step the instance has left behind — is an error too.

A signal is applied in two strides: the module that knows it (`results`, `timers`, `events`, `control`) ends steps and
sets tokens in motion, then `walk` lets them enter nodes until no token moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.core.documents.entity import entity_changed
from holdfast.core.documents.gates import check_start
from holdfast.core.documents.verbs import verb_called
from holdfast.core.fast.backward import fail, plan, take_back
from holdfast.core.fast.forward import begin, go_on
from holdfast.core.kernel.builder import Move, Overflow, Turn, without_own
from holdfast.core.kernel.finish import finish
from holdfast.core.kernel.walk import walk
from holdfast.core.machine.backfill import backfilled
from holdfast.core.machine.gates import gate_done
from holdfast.core.machine.triggers import triggered
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import (
    CONDITIONAL,
    Abort,
    Backfilled,
    CallDue,
    CallsSpent,
    Cancel,
    ChildFinished,
    Decided,
    EntityChanged,
    EventArrived,
    EventsExpired,
    ForceFail,
    GateDone,
    HistoryRead,
    Migrate,
    ReceiptArrived,
    Requeue,
    RequeueMany,
    Rerun,
    Reschedule,
    Resume,
    Signal,
    Started,
    Suspend,
    TimerDue,
    Triggered,
    VerbCalled,
    WorkDone,
    WorkFailed,
    started_by,
)
from holdfast.core.model.state import ROOT, Instance
from holdfast.core.model.status import ROLLING_BACK, RUNNING, TERMINAL, InstanceStatus
from holdfast.core.rollback import rollback
from holdfast.core.signals import control, decisions, early, events, migrate, requeue, rerun, results, timers
from holdfast.errors import Conflict, Refused


def decide(program: Program, instance: Instance, signal: Signal, facts: Facts) -> Decision:
    plain: Decision | None = None
    if type(signal) is WorkDone:
        if instance.status is RUNNING:
            plain = go_on(program, instance, signal, facts)
        elif instance.status is ROLLING_BACK:
            plain = take_back(program, instance, signal, facts)
    elif type(signal) is Started:
        plain = begin(program, instance, signal, facts)
    elif type(signal) is WorkFailed:
        if instance.status is RUNNING:
            plain = fail(program, instance, signal, facts)
    elif type(signal) is HistoryRead:
        plain = plan(program, instance, signal, facts)
    return decide_at_length(program, instance, signal, facts) if plain is None else plain


def decide_at_length(program: Program, instance: Instance, signal: Signal, facts: Facts) -> Decision:
    _check_legal(instance, signal)
    turn = Turn(program, instance, facts)
    try:
        _APPLY[type(signal)](turn, signal)
    except Overflow as overflow:  # the data of the signal is too large: nothing is changed
        raise overflow.refusal() from None
    if turn.moves:
        walk(turn)
    return finish(turn)


def _check_legal(instance: Instance, signal: Signal) -> None:
    if type(signal) in _OF_MACHINES:  # what it meets is part of its answer
        return
    if instance.status in TERMINAL and not _is_afterwork(instance, signal):
        raise Conflict(
            f"The instance is over: {instance.status}.",
            code="INSTANCE_OVER",
            hint="Start a new one if it should run again.",
        )
    if (type(signal) is Started) == (instance.version > 0):
        if instance.version:
            raise Refused("The instance has already been started.", code="ALREADY_STARTED")
        raise Conflict("The instance has not been started yet.", code="INSTANCE_PENDING", hint="Try again in a moment.")
    if isinstance(signal, CONDITIONAL) and signal.if_version not in (None, instance.version):
        raise Conflict(
            f"The instance is at version {instance.version}, not {signal.if_version}.",
            code="VERSION_CONFLICT",
            hint="Read it again and decide on what you see then.",
        )


def _is_afterwork(instance: Instance, signal: Signal) -> bool:
    """Check if the signal is about a compensation that runs again after the instance has ended."""
    if type(signal) is Requeue:
        return signal.undo is not None
    if type(signal) is RequeueMany:
        return all(part.undo is not None for part in signal.parts)
    return instance.state.rollback is not None and type(signal) in (WorkDone, WorkFailed, TimerDue)


def _triggered(turn: Turn, signal: Triggered) -> None:
    """Begin the machine unless it has begun, and decide the event on it."""
    if not turn.instance.version:
        _started(turn, Started(turn.context))
        walk(turn)
    triggered(turn, signal)


def _backfilled(turn: Turn, signal: Backfilled) -> None:
    if not turn.instance.version:
        _started(turn, Started(turn.context))
        walk(turn)
    backfilled(turn, signal)


def _started(turn: Turn, signal: Started) -> None:
    if signal.node is not None:
        check_start(turn.program, signal.node)
    turn.instance = started_by(turn.instance, turn.facts.actor)
    turn.status = InstanceStatus.RUNNING
    turn.note("instance_started", detail=None if signal.origin is None else {"origin": signal.origin})
    timers.set_expiry(turn)
    # A new instance has no approvals and no error yet; only a re-run keeps earlier signatures.
    raw = signal.raw if signal.origin is not None else without_own(turn.program.own, signal.raw)
    if raw is not signal.raw:
        turn.context = raw
    turn.moves.append(Move(ROOT, 0, signal.node or turn.program.entry, raw, cause="started"))


_OF_MACHINES: Final = frozenset({Triggered, Backfilled})
_APPLY: Final[dict[type, Callable[[Turn, Any], None]]] = {
    Started: _started,
    WorkDone: results.work_done,
    WorkFailed: results.work_failed,
    CallDue: results.call_due,
    CallsSpent: results.calls_spent,
    TimerDue: timers.timer_due,
    Reschedule: timers.reschedule,
    EventArrived: events.event_arrived,
    EventsExpired: early.expired,
    Decided: decisions.decided,
    ChildFinished: events.child_finished,
    ReceiptArrived: events.receipt_arrived,
    Cancel: control.cancel,
    Abort: control.abort,
    ForceFail: control.force_fail,
    Suspend: control.suspend,
    Resume: control.resume,
    Requeue: requeue.requeue,
    RequeueMany: requeue.requeue_many,
    HistoryRead: rollback.history_read,
    Migrate: migrate.migrate,
    Rerun: rerun.rerun,
    VerbCalled: verb_called,
    EntityChanged: entity_changed,
    Triggered: _triggered,
    Backfilled: _backfilled,
    GateDone: gate_done,
}
