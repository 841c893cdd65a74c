"""Incidents: one log line and one count for every failure, with the place, the error and the consequence.

Incidents of a decision are read off its events, after the COMMIT was answered and acted upon
(`runtime/telemetry/incident_lines.py`). Decisions that can bring no failure are recognised by their kind alone, so a
success pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.decision import Decision
from holdfast.core.model.signals import WorkDone, WorkFailed
from holdfast.core.model.state import Instance
from holdfast.logs import logger
from holdfast.runtime.telemetry.flow_counts import FlowCounts
from holdfast.runtime.telemetry.incident_lines import SECOND, Line, lines_of, short, traceback_of
from holdfast.store.pg.wire import read_int

if TYPE_CHECKING:
    from holdfast.runtime.commit.batch import Plan
    from holdfast.runtime.commit.items import Item
    from holdfast.runtime.worker.context import Job
    from holdfast.store.commit.deliveries import Change
    from holdfast.store.deliveries import Claimed
    from holdfast.store.effects import ClaimedEffect, CountedOutcome, FinishedEffect, LostDelivery
    from holdfast.store.queue.work import Takeover

QUIET: Final = frozenset({"begin", "advance", "finish", "plan", "undo"})  # plain decisions without a failure

log = logger("holdfast.incidents")

Rows = list[list[Any]]


class Incidents:
    """Counter and log of failures, by flow and step: of steps, compensations and deliveries."""

    def __init__(self, home: str) -> None:
        self.calls_failed = FlowCounts(home, names=2)  # by flow and step
        self.instances_stopped = FlowCounts(home)  # by flow and status: failed, or put aside by the engine
        self.letters = FlowCounts(home)  # by flow
        self.takeovers = 0
        self.leases_lost = 0

    def committed(self, plan: Plan, loud: list[Decision]) -> None:
        """Log and count committed decisions that are not `QUIET`. A failure in here must not harm the follow-up of a
        commit.
        """
        try:
            for decision in loud:
                program = plan.catalog.known(decision.instance.definition)
                for line in lines_of(decision, program, decision.instance.updated):
                    self._count(line, decision.instance)
                    _write(line, decision)
            for queued, reason, error in plan.buried:
                instance = plan.locked.instances.get(queued.instance)
                flow, tenant = ("", "") if instance is None else (instance.flow, instance.org)
                told = f"{reason}: {error.message}"
                self._signal_buried(queued.instance, flow, tenant, queued.kind, queued.attempts + 1, told)
            for change in plan.deliveries.changes:
                if change.settled.buries:
                    self._fact_buried(change)
            for item in plan.stale:
                self.came_late(item, plan.locked.instances.get(item.instance))
        except Exception:
            log.exception("Incidents of a commit could not be logged")

    def signals_buried(self, instance: bytes, rows: Rows, error: str) -> None:
        """Log buried signals; rows are the answer of `bury_signals`."""
        for flow, org, kind, attempts in rows:
            self._signal_buried(instance, flow.decode(), org.decode(), kind.decode(), read_int(attempts), error)

    def _signal_buried(self, instance: bytes, flow: str, tenant: str, kind: str, attempt: int, error: str) -> None:
        self.letters.add(tenant, flow)
        _say(
            logging.ERROR, "Dead letter opened: a signal cannot be applied",
            flow=flow, instance=instance, tenant=tenant, signal=kind, attempt=attempt, error=short(error),
            next="dead letter",
        )  # fmt: skip

    def steps_buried(self, instance: bytes, rows: Rows, error: str) -> None:
        """Log buried steps; rows are the answer of `bury_work`."""
        for flow, org, step, attempts in rows:
            self.letters.add(org.decode(), flow.decode())
            _say(
                logging.ERROR, "Dead letter opened: a result cannot be stored",
                flow=flow.decode(), step=step.decode(), instance=instance, tenant=org.decode(),
                attempt=read_int(attempts), error=short(error), next="dead letter",
            )  # fmt: skip

    def taken_over(self, found: Iterable[Takeover]) -> None:
        for one in found:
            self.takeovers += 1
            _say(
                logging.WARNING, "Step taken over: its worker's lease is over, or its attempt had no time left",
                flow=one.flow, step=one.step, instance=one.instance, tenant=one.org, attempt=one.calls,
                error="LEASE_LOST", next="back in its queue",
            )  # fmt: skip

    def lease_lost(self, running: Iterable[Job]) -> None:
        """A lease ran out while these calls were running here."""
        self.leases_lost += 1
        for job in running:
            _say(
                logging.WARNING, "Lease lost while the step ran",
                flow=job.flow, step=job.place.id, instance=job.instance, tenant=job.org, attempt=job.calls,
                error="LEASE_LOST", next="its result is refused, another worker takes the step over",
            )  # fmt: skip

    def delivery_failed(self, effect: ClaimedEffect, finished: FinishedEffect, counted: CountedOutcome) -> None:
        """Log and count the stored outcome of a failed delivery. The step that awaits a dead effect fails by the
        receipt, and is counted there.
        """
        is_dead, flow = finished.status == "dead_letter", counted.flow or ""
        if not (is_dead and counted.awaited):
            self.calls_failed.add(effect.org, flow, counted.step or "")
        if is_dead:
            self.letters.add(effect.org, flow)
        about: dict[str, Any] = {
            **_about(effect), "flow": flow, "step": counted.step, "error": _error_of(finished),
            "next": "dead letter" if is_dead else _next_attempt(effect, finished),
        }  # fmt: skip
        what = "Delivery failed, dead letter opened" if is_dead else "Delivery failed, retry follows"
        _say(logging.ERROR if is_dead else logging.WARNING, what, **about)
        if log.isEnabledFor(logging.DEBUG) and (trace := _evidence_of(finished).get("traceback")):
            _say(logging.DEBUG, f"Traceback of the failed delivery: {trace}", **about)

    def deliveries_taken_over(self, found: Iterable[LostDelivery]) -> None:
        for one in found:
            _say(
                logging.WARNING,
                "Delivery taken over: its worker's lease is over, or its attempt had no time left",
                flow=one.flow, step=one.step, instance=one.instance, tenant=one.org, effect=str(UUID(bytes=one.id)),
                kind=one.kind, target=one.target, attempt=one.attempts, error="LEASE_LOST", next="back in the outbox",
            )  # fmt: skip

    def delivery_came_late(self, effect: ClaimedEffect) -> None:
        """Log a refused outcome: the effect has passed to another worker, or the answer of its commit was lost."""
        _say(
            logging.WARNING, "Outcome of a delivery came too late: it is stored, or leased to another worker",
            **_about(effect), error="LEASE_LOST", next="the outcome is dropped",
        )  # fmt: skip

    def fact_failed(self, fact: Claimed, consumer: str, error: str, next: str, trace: str | None = None) -> None:
        """Log and count a consumer that failed on a fact; the commit that opens a dead letter logs that."""
        body: dict[str, Any] = msgspec.json.decode(fact.body)
        flow = f"{body['environment']}.{body['definition']}"
        self.calls_failed.add(fact.org, flow, fact.state)
        about: dict[str, Any] = {
            "flow": flow, "step": fact.state, "instance": fact.key.fact.instance, "tenant": fact.org,
            "consumer": consumer, "attempt": fact.attempt, "error": short(error), "next": next,
        }  # fmt: skip
        _say(logging.WARNING, "A consumer failed on a fact", **about)
        if trace is not None and log.isEnabledFor(logging.DEBUG):
            _say(logging.DEBUG, f"Traceback of the failed consumer: {trace}", **about)

    def _fact_buried(self, change: Change) -> None:
        self.letters.add(change.org, change.flow)
        delivery, halts = change.delivery, change.settled.halts
        _say(
            logging.ERROR, "Dead letter opened: a consumer has not processed a fact",
            flow=change.flow, instance=change.key[0], tenant=change.org, consumer=delivery.name,
            attempt=delivery.attempts, error=short(change.message or change.settled.notice or ""),
            next="suspended, until it is resumed or requeued" if halts else "the machine goes on",
        )  # fmt: skip

    def came_late(self, item: Item, instance: Instance | None) -> None:
        """Log a refused result: the step has ended without it, or has passed to another worker."""
        signal = item.signal
        attempt = signal.calls if isinstance(signal, WorkDone | WorkFailed) else None
        _say(
            logging.WARNING, "Result came too late: its step is over or leased to another worker",
            flow=None if instance is None else instance.flow, step=_step_of(item, instance), instance=item.instance,
            tenant=None if instance is None else instance.org, attempt=attempt, error="LEASE_LOST",
            next="the result is dropped",
        )  # fmt: skip

    def _count(self, line: Line, instance: Instance) -> None:
        if line.kind == "call":
            self.calls_failed.add(instance.org, instance.flow, line.step or "")
        elif line.kind == "stopped":
            self.instances_stopped.add(instance.org, instance.flow, line.status)
        elif line.kind == "letter":
            self.letters.add(instance.org, instance.flow)


def _step_of(item: Item, instance: Instance | None) -> str | None:
    signal = item.signal
    if instance is None or not isinstance(signal, WorkDone | WorkFailed):
        return None
    tokens = (*instance.state.tokens.values(), *instance.state.ghosts.values())
    return next((token.node for token in tokens if token.step == signal.step), None)


def _about(effect: ClaimedEffect) -> dict[str, Any]:
    return {
        "instance": effect.row.instance, "tenant": effect.org, "effect": str(UUID(bytes=effect.row.id)),
        "kind": effect.kind, "target": effect.target, "attempt": effect.attempts,
    }  # fmt: skip


def _error_of(finished: FinishedEffect) -> str:
    error: dict[str, Any] = msgspec.json.decode(finished.error or b"{}")
    return short(f"{error.get('code')}: {error.get('message', '')}")


def _evidence_of(finished: FinishedEffect) -> dict[str, Any]:
    return msgspec.json.decode(finished.evidence or b"{}")


def _next_attempt(effect: ClaimedEffect, finished: FinishedEffect) -> str:
    when = f"in {finished.delay / SECOND:g} s" if finished.delay else "at once"
    return f"retry: attempt {effect.attempts + 1} of {effect.max_attempts} {when}"


def _write(line: Line, decision: Decision) -> None:
    if not log.isEnabledFor(line.level):
        return
    instance = decision.instance
    about: dict[str, Any] = {
        "flow": instance.flow, "step": line.step, "instance": instance.id, "tenant": instance.org,
        "attempt": line.attempt, "error": line.error, "next": line.next,
    }  # fmt: skip
    _say(line.level, line.what, **about)
    if line.kind == "call" and log.isEnabledFor(logging.DEBUG) and (trace := traceback_of(decision, line)):
        _say(logging.DEBUG, f"Traceback of the failed call: {trace}", **about)


def _say(level: int, what: str, *, instance: bytes, **about: Any) -> None:
    """Log a line. Its place in the code is this function, so the stack is not searched for it."""
    if not log.isEnabledFor(level):
        return
    extra = {"instance": str(UUID(bytes=instance)), **{name: value for name, value in about.items() if value}}
    record = log.makeRecord(log.name, level, __file__, _LINE, "%s", (what,), None, func="_say", extra=extra)
    log.handle(record)


_LINE: Final = _say.__code__.co_firstlineno
