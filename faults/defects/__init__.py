"""Twenty-one defects on purpose, each with the scenario that has to turn red when it is switched on.

A harness that has never found anything proves nothing. Each module here breaks one thing the engine relies on, by
another text of a statement or another function in its place, in a process of its own; nothing of it is in the engine.
`apply()` makes the change; a module may also have `prepare(dsn)` for what the database itself would still refuse.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from faults.defects import lease_probes, machine_probes, probes
from faults.report import Figure
from faults.scenarios import begins, clock, duplicates, poison, wakeups

Probe = Callable[[int], list[Figure]]


@dataclass(frozen=True)
class Defect:
    name: str
    what: str
    scenario: str
    probe: Probe

    @property
    def module(self) -> str:
        return f"{__name__}.{self.name}"

    def apply(self) -> None:
        importlib.import_module(self.module).apply()


DEFECTS = [
    Defect("no_fence", "a result counts whatever lease it comes from", "S3", probes.zombie),
    Defect("fence_reset", "a fence begins anew when work is released", "S4", probes.same_worker),
    Defect("lease_revived", "a renewal revives a lease that ran out", "S3", probes.revived),
    Defect("attempt_on_failure", "a call is counted when it fails, not when it begins", "S16", poison.suicide),
    Defect("receipt_overwritten", "a second receipt replaces the first", "S8", probes.second_receipt),
    Defect("no_dedupe", "a signal's id is not remembered", "S11", lambda seed: duplicates.measure(6, seed)),
    Defect("unlocked_wait", "a wait is registered without its key's lock", "S13", lambda seed: wakeups.gate(6, seed)),
    Defect("no_poll", "nobody looks unless NOTIFY says so", "S13", lambda seed: wakeups.silence(3, seed)),
    Defect("claim_in_limit", "a claim by IN (… LIMIT n)", "S10", probes.claim_size),
    Defect("cursor_outbox", "the queue is read by what is newer than the last look", "S13", probes.late_commit),
    Defect("worker_clock", "leases and timers by the worker's own clock", "S14", lambda seed: clock.still(6, seed)),
    Defect("session_tenant", "the tenant is set for the session", "S18", probes.tenant),
    Defect("early_timers", "timers fire 300 ms early", "S14", lease_probes.early),
    Defect("dead_loop", "a lease is renewed for a dead event loop", "S3", lease_probes.dead_loop),
    Defect("trust_from_answer", "trust is counted from a renewal's answer", "S3", lease_probes.late_answer),
    Defect("begins_lost", "nobody asks for the lease before a call", "S26", lambda seed: begins.frozen(seed, 3)),
    Defect("begins_suspended", "suspended work stays queued", "S26", lambda seed: begins.suspended(seed, 3)),
    Defect("promotion_skipped", "an ACK does not make the next fact due", "S27", machine_probes.in_turn),
    Defect("order_lost", "every fact is due at once", "S27", machine_probes.in_turn),
    Defect("attempt_while_down", "a probe of who is down counts when it begins", "S27", machine_probes.outage),
    Defect("gate_early", "phases go out together", "S28", machine_probes.phases),
]


def named(name: str) -> Defect:
    return next(defect for defect in DEFECTS if defect.name == name)
