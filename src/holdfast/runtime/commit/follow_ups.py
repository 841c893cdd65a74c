"""Follow-ups of a decision within its commit: sub-flows, early events, the plan of a rollback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from holdfast.core.kernel.scopes import is_of_parent
from holdfast.core.model.decision import Child, Decision, EarlyEvents, Facts, History, LastCall, ParkedTimers
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Program
from holdfast.core.model.signals import (
    SYSTEM,
    Abort,
    Actor,
    CallsSpent,
    Cancel,
    ChildFinished,
    EventArrived,
    Failure,
    ForceFail,
    HistoryRead,
    PastStep,
    Resume,
    Signal,
    Suspend,
    TimerDue,
)
from holdfast.core.model.state import Instance, Parked
from holdfast.core.model.status import InstanceStatus
from holdfast.errors import Conflict, Forbidden, HoldfastError, Refused
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.commit.history_cache import Trails
from holdfast.store.commit.batch import ChildStart
from holdfast.store.commit.history import read_last_call, read_past
from holdfast.store.commit.needs import KeptEvent, count_ancestors, mark_taken, take_early_events
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import Session

DEEPEST: Final = 32  # sub-flows inside each other
_END: Final[dict[type, InstanceStatus]] = {
    Cancel: InstanceStatus.CANCELLED,
    Abort: InstanceStatus.ABORTED,
    ForceFail: InstanceStatus.FAILED,
}
_OVERTAKEN: Final = frozenset({"EVENT_NOT_EXPECTED", "INSTANCE_OVER", "INSTANCE_SUSPENDED"})


class Plan(Protocol):
    """The part of a batch that follow-ups read and extend."""

    catalog: Catalog
    kept: list[tuple[bytes, str, KeptEvent]]
    children: list[ChildStart]
    rollbacks: dict[bytes, Entry]

    @property
    def decide(self) -> Callable[[Program, Instance, Signal, Facts], Decision]: ...

    def facts(self, instance: bytes, actor: Actor = SYSTEM) -> Facts: ...


async def follow(plan: Plan, session: Session, program: Program, entry: Entry, decision: Decision) -> None:
    for child in decision.children:
        lost = await _start_child(plan, session, entry.before, child)
        if lost is not None:
            await _go_on(plan, session, program, entry, lost, SYSTEM)
    for need in decision.needs:
        if isinstance(need, LastCall):
            await _give_up(plan, session, program, entry, need)
    if any(isinstance(need, History) for need in decision.needs):
        plan.rollbacks[entry.before.id] = entry  # planned together, when all items have been decided upon
        return
    nodes = _standing(entry.decisions[-1].instance)
    needs = [need for need in decision.needs if isinstance(need, EarlyEvents) and need.token in nodes]
    parked = [timer for need in decision.needs if isinstance(need, ParkedTimers) for timer in need.timers]
    if needs or parked:
        await _catch_up(plan, session, program, entry, needs, parked, nodes)


async def _catch_up(
    plan: Plan, session: Session, program: Program, entry: Entry, needs: list[EarlyEvents],
    parked: list[tuple[int, Parked]], nodes: dict[str, str],
) -> None:  # fmt: skip
    """Events that came before they could be taken, and timers that stood still with their wait, oldest first."""
    id, org = entry.before.id, entry.before.org
    early = await take_early_events(session, id, org, needs, nodes)
    plan.kept += [(id, org, event) for event in early if event.from_inbox]
    waits = defaultdict[str, list[str]](list)
    for need in needs:
        if need.key is None:
            waits[need.event].append(need.token)
    mine = [(event.kept_at, event.id, event) for kept, _, event in plan.kept if kept == id and event.event in waits]
    keyed = [(event.kept_at, event.id, event) for event in early if not event.from_inbox]
    timers = [(due, timer.wait.encode(), timer) for due, timer in parked]
    for _, _, came in sorted([*mine, *keyed, *timers], key=lambda one: one[:2]):
        if isinstance(came, Parked):
            await _go_on(plan, session, program, entry, TimerDue(came.path, came.wait, came.purpose), SYSTEM)
        elif came.from_inbox:
            tokens = [token for token in waits[came.event] if came.node in (None, nodes[token])]
            await _try_kept(plan, session, program, entry, came, tokens)
        else:
            await _go_on(plan, session, program, entry, _arrived(came, came.token), came.actor)


def plan_known_rollbacks(plan: Plan, trails: Trails) -> None:
    """Plan the rollbacks of instances whose history this process remembers; leave the others."""
    for id, entry in list(plan.rollbacks.items()):
        past = trails.past_of(entry)
        if past is not None:
            del plan.rollbacks[id]
            _plan_rollback(plan, entry, past)


async def plan_rollbacks(plan: Plan, session: Session) -> None:
    entries = list(plan.rollbacks.values())
    plan.rollbacks = {}
    past = await read_past(session, entries)
    for entry in entries:
        _plan_rollback(plan, entry, past[entry.before.id])


def _plan_rollback(plan: Plan, entry: Entry, past: list[PastStep]) -> None:
    instance = entry.decisions[-1].instance
    program = plan.catalog.known(instance.definition)
    assert program is not None
    with suppress(Refused):  # a later item of the batch stopped the rollback
        entry.decisions.append(plan.decide(program, instance, HistoryRead(past), plan.facts(instance.id)))


async def _give_up(plan: Plan, session: Session, program: Program, entry: Entry, need: LastCall) -> None:
    input, failure = await read_last_call(session, entry.before.id, need.step, need.at)
    await _go_on(plan, session, program, entry, CallsSpent(need.path, need.step, failure, input), SYSTEM)


async def _try_kept(
    plan: Plan, session: Session, program: Program, entry: Entry, event: KeptEvent, tokens: list[str]
) -> None:
    """The first wait that takes the event has it; if none does, it stays kept as it was."""
    kept = (entry.before.id, entry.before.org, event)
    if kept not in plan.kept:  # taken by what the one before set in motion
        return
    plan.kept.remove(kept)
    for token in tokens:
        if await _go_on(plan, session, program, entry, _arrived(event, token), event.actor):
            return
    plan.kept.append(kept)


async def _go_on(plan: Plan, session: Session, program: Program, entry: Entry, signal: Signal, actor: Actor) -> bool:
    facts = plan.facts(entry.before.id, actor)
    try:
        following = plan.decide(program, entry.decisions[-1].instance, signal, facts)
    except (Refused, Conflict, Forbidden):
        return False
    entry.decisions.append(following)
    await remember_taker(session, entry, signal)
    await follow(plan, session, program, entry, following)
    return True


async def remember_taker(session: Session, entry: Entry, signal: Signal) -> None:
    """Record that a node took a keyed event: once per node of an instance, however often a loop comes by."""
    if type(signal) is EventArrived and signal.keyed:
        node = _taker(entry.decisions[-1], signal.id)
        if node is not None:
            await mark_taken(session, entry.before.id, entry.before.org, signal.id, node)


def is_overtaken(signal: Signal, refusal: HoldfastError) -> bool:
    """Recognise a keyed event whose wait has ended or is suspended: the event stays with its key, for later waits."""
    return type(signal) is EventArrived and signal.keyed and refusal.code in _OVERTAKEN


def is_repeated(signal: Signal, instance: Instance, refusal: HoldfastError, *, taken_back: bool) -> bool:
    """Recognise a signal whose effect is already there, or is that of a rollback.

    The cancel or abort of a sub-flow that has ended meanwhile is no failure either: its parent learns of the end.
    """
    code = refusal.code
    if isinstance(signal, Suspend | Resume):
        return code == ("INSTANCE_SUSPENDED" if isinstance(signal, Suspend) else "INSTANCE_NOT_SUSPENDED")
    if not isinstance(signal, Cancel | Abort | ForceFail):
        return False
    is_undone = isinstance(signal, Cancel) and taken_back
    if code == "INSTANCE_OVER":
        return instance.status is _END[type(signal)] or is_undone or is_of_parent(instance, signal.reason)
    return code == "INSTANCE_STOPPING" or (code == "INSTANCE_ROLLING_BACK" and is_undone)


async def _start_child(plan: Plan, session: Session, parent: Instance, child: Child) -> ChildFinished | None:
    """Resolve a sub-flow; one that does not exist, or is nested too deep, is a child that failed."""
    try:
        await _refuse_depth(session, parent, child)
        found = await plan.catalog.startable(session, parent.org, child.flow, child.version, inside=True)
    except HoldfastError as failure:
        return ChildFinished(child.token, "failed", None, Failure(failure.code, failure.message))
    plan.children.append(
        ChildStart(
            id=child.id,
            org=parent.org,
            definition=found.id,
            flow=found.name,
            flow_version=found.version,
            input=child.input,
            parent=parent.id,
            parent_token=child.token,
            trace=parent.trace,
        )
    )
    return None


async def _refuse_depth(session: Session, parent: Instance, child: Child) -> None:
    """Flows that start each other end here, and not when the disk is full."""
    if parent.parent is not None and await count_ancestors(session, parent.id, DEEPEST) >= DEEPEST:
        raise Refused(
            f"{child.flow!r} would be sub-flow {DEEPEST + 1} inside each other; there are at most {DEEPEST}.",
            code="SUBFLOW_TOO_DEEP",
            hint="Two flows start each other, perhaps through others: decide before that whether to go on.",
        )


def _arrived(event: KeptEvent, token: str) -> EventArrived:
    is_kept = event.from_inbox
    return EventArrived(event.id, event.event, event.payload, None, token, kept=is_kept, keyed=not is_kept)


def _standing(instance: Instance) -> dict[str, str]:
    """The present node of each token."""
    return {token_id(path, token.hop): token.node for path, token in instance.state.tokens.items()}


def _taker(decision: Decision, event: bytes) -> str | None:
    """The node whose wait the event ended."""
    id = event.hex().encode()
    return next((e.node for e in decision.events if e.type == "event_received" and id in (e.detail or b"")), None)
