"""What a decision sets in motion within its commit: sub-flows, events that came early, the plan of a rollback."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from holdfast.core.decide import decide
from holdfast.core.decision import Child, Decision, EarlyEvents, Facts, History, LastCall
from holdfast.core.ids import token_id
from holdfast.core.program import Program
from holdfast.core.signals import (
    SYSTEM,
    Actor,
    CallsSpent,
    ChildFinished,
    EventArrived,
    Failure,
    HistoryRead,
    PastStep,
    Signal,
)
from holdfast.core.state import Instance
from holdfast.errors import Conflict, Forbidden, HoldfastError, Refused
from holdfast.store.commit import ChildStart, Entry
from holdfast.store.early import mark_taken
from holdfast.store.families import count_ancestors
from holdfast.store.history import read_last_call, read_past
from holdfast.store.needs import KeptEvent, take_early_events
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.runtime.plan import Plan
    from holdfast.runtime.trails import Trails

DEEPEST: Final = 32  # sub-flows inside each other


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
    if not needs:
        return
    early = await take_early_events(session, entry.before.id, entry.before.org, needs, nodes)
    plan.kept += [(entry.before.id, entry.before.org, event) for event in early if event.from_inbox]
    for need in needs:
        if need.key is None:
            await _try_kept(plan, session, program, entry, need)
    for event in early:
        if not event.from_inbox:
            await _go_on(plan, session, program, entry, _arrived(event, event.token), event.actor)


def plan_known_rollbacks(plan: Plan, trails: Trails) -> None:
    """Those of instances whose history this process remembers; the others are left."""
    for id, entry in list(plan.rollbacks.items()):
        past = trails.past_of(entry)
        if past is not None:
            del plan.rollbacks[id]
            _plan_rollback(plan, entry, past)


async def plan_rollbacks(plan: Plan, session: Session) -> None:
    entries = list(plan.rollbacks.values())
    plan.rollbacks = {}
    past = await read_past(session, entries, plan.locked.now)
    for entry in entries:
        _plan_rollback(plan, entry, past[entry.before.id])


def _plan_rollback(plan: Plan, entry: Entry, past: list[PastStep]) -> None:
    instance = entry.decisions[-1].instance
    program = plan.catalog.known(instance.definition)
    assert program is not None
    with suppress(Refused):  # a later item of the batch stopped the rollback
        entry.decisions.append(decide(program, instance, HistoryRead(past), Facts(plan.locked.now)))


async def _give_up(plan: Plan, session: Session, program: Program, entry: Entry, need: LastCall) -> None:
    input, failure = await read_last_call(session, entry.before.id, need.step, need.at)
    await _go_on(plan, session, program, entry, CallsSpent(need.path, need.step, failure, input), SYSTEM)


async def _try_kept(plan: Plan, session: Session, program: Program, entry: Entry, need: EarlyEvents) -> None:
    """The first kept event that an edge of the wait takes; the others stay kept as they were."""
    mine = [kept for kept in plan.kept if kept[0] == entry.before.id and kept[2].event == need.event]
    for kept in sorted(mine, key=lambda kept: (kept[2].kept_at, kept[2].id)):
        if kept not in plan.kept:  # taken by what the one before set in motion
            continue
        plan.kept.remove(kept)
        if await _go_on(plan, session, program, entry, _arrived(kept[2], need.token), kept[2].actor):
            return
        plan.kept.append(kept)


async def _go_on(plan: Plan, session: Session, program: Program, entry: Entry, signal: Signal, actor: Actor) -> bool:
    try:
        following = decide(program, entry.decisions[-1].instance, signal, Facts(plan.locked.now, actor))
    except (Refused, Conflict, Forbidden):
        return False
    entry.decisions.append(following)
    await remember_taker(session, entry, signal)
    await follow(plan, session, program, entry, following)
    return True


async def remember_taker(session: Session, entry: Entry, signal: Signal) -> None:
    """An event by key is taken once per node of an instance, however often a loop comes by."""
    if type(signal) is EventArrived and signal.keyed:
        node = _taker(entry.decisions[-1], signal.id)
        if node is not None:
            await mark_taken(session, entry.before.id, entry.before.org, signal.id, node)


def is_overtaken(signal: Signal, refusal: HoldfastError) -> bool:
    """An event by key whose wait ended meanwhile: it stays with its key, for waits that open later."""
    return type(signal) is EventArrived and signal.keyed and refusal.code in ("EVENT_NOT_EXPECTED", "INSTANCE_OVER")


async def _start_child(plan: Plan, session: Session, parent: Instance, child: Child) -> ChildFinished | None:
    """Resolve a sub-flow; one that does not exist, or stands too deep, is a child that failed."""
    try:
        await _refuse_depth(session, parent, child)
        found = await plan.catalog.find(session, parent.org, child.flow, child.version, inside=True)
    except HoldfastError as failure:
        return ChildFinished(child.token, "failed", None, Failure(failure.code, failure.message))
    plan.children.append(
        ChildStart(
            child.id, parent.org, found.id, found.name, found.version, child.input, parent.id, child.token,
            parent.trace,
        )
    )  # fmt: skip
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
    """The nodes tokens stand on, by token."""
    return {token_id(path, token.hop): token.node for path, token in instance.state.tokens.items()}


def _taker(decision: Decision, event: bytes) -> str | None:
    """The node whose wait the event ended."""
    id = event.hex().encode()
    return next((e.node for e in decision.events if e.type == "event_received" and id in (e.detail or b"")), None)
