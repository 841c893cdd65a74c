"""Events that come before their wait, or while the instance is suspended: keep them, and look them up later."""

from __future__ import annotations

from typing import Final

from holdfast.core.documents.gates import is_owned
from holdfast.core.kernel.builder import Turn
from holdfast.core.kernel.routing import may_pass
from holdfast.core.model.control_rows import EventKept, EventsLapsed
from holdfast.core.model.decision import EarlyEvents, ParkedTimers
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place, Program
from holdfast.core.model.signals import EventArrived, EventsExpired
from holdfast.core.model.state import Parked, Token
from holdfast.core.model.status import Phase
from holdfast.core.people.permissions import check_actor, refuse_way
from holdfast.errors import Conflict, Forbidden, Refused
from holdfast.graph.model import Behaviour

ENGINE_EVENTS: Final = frozenset({"completed", "error", "timeout"})
MOST_KEPT: Final = 100  # events of one instance at a time: events that no step takes must not pile up
_RESTS: Final = frozenset({Behaviour.REST, Behaviour.TIMER})


def names_taken(program: Program, place: Place) -> list[str]:
    """The events that a token resting here takes without asking a person, in the order they are written."""
    node = place.node
    if is_owned(program, place) or place.traits.asks_person or not (place.behaviour in _RESTS or node.awaits):
        return []
    waits = [] if node.wait is None else [node.wait.event]
    return list(dict.fromkeys(name for name in (*waits, *place.ways) if name not in ENGINE_EVENTS))


def keep(turn: Turn, signal: EventArrived) -> None:
    """Keep the event for a step that is still to come, or refuse it at once if there is none."""
    takers = find_takers(turn, signal)
    if not takers:
        raise not_expected(signal.event)
    if is_for_now(signal):
        raise _not_now(signal.event)
    _check_actor(turn, takers, signal.event)
    if turn.early >= MOST_KEPT:
        raise Conflict(
            f"{MOST_KEPT} events that came early are kept for this instance already.",
            code="EARLY_EVENTS_FULL",
            hint="Send it again when the instance has taken some of them.",
        )
    turn.keep = True
    turn.early += 1
    turn.control(EventKept(event=signal.event, id=signal.id.hex()))
    turn.note("event_kept", detail={"event": signal.event})


def is_for_now(signal: EventArrived) -> bool:
    """Tell whether the sender wants the event taken at once or not at all."""
    return not signal.early or signal.if_version is not None


def is_known(program: Program, event: str) -> bool:
    """Tell whether any step of the flow takes an event of this name."""
    return any(
        event in place.ways or (place.node.wait is not None and place.node.wait.event == event)
        for place in program.places.values()
    )


def ask(turn: Turn, place: Place, token: str, step: bytes) -> None:
    """Ask for the kept events, for a wait that is open from now on."""
    if turn.early:
        turn.needs = [*turn.needs, *(EarlyEvents(token, step, event) for event in names_taken(turn.program, place))]


def ask_again(turn: Turn) -> frozenset[str]:
    """Ask for the events that came while the instance was suspended, for every wait that was open all along.

    Return the paths of those waits.
    """
    asking: set[str] = set()
    for path, token in turn.tokens.items():
        if token.phase is not Phase.RESTING or not _was_there(turn, path, token):
            continue
        before, name = len(turn.needs), token_id(path, token.hop)
        ask(turn, turn.program.places[token.node], name, token.step)
        keyed = [wait for wait in token.waits if wait.event is not None and wait.key is not None]
        turn.needs = [*turn.needs, *(EarlyEvents(name, token.step, w.event or "", w.key) for w in keyed)]
        if len(turn.needs) > before:
            asking.add(path)
    return frozenset(asking)


def expired(turn: Turn, signal: EventsExpired) -> None:
    """Record that events which no step took in time have left the inbox."""
    turn.early = max(0, turn.early - len(signal.events))
    turn.control(EventsLapsed(events=len(signal.events)))
    for event in signal.events:
        turn.note("event_expired", detail=event)


def put_off(turn: Turn, parked: tuple[Parked, ...], asking: frozenset[str]) -> tuple[Parked, ...]:
    """Leave the parked timers of waits that ask for events to the committer: it handles both in one order of time.

    Return the other timers, to fire at once.
    """
    later = [timer for timer in parked if asking and (not timer.path or timer.path in asking)]
    if later:
        turn.needs = [*turn.needs, ParkedTimers(tuple((_due(turn, timer), timer) for timer in later))]
    return tuple(timer for timer in parked if timer not in later)


def _due(turn: Turn, timer: Parked) -> int:
    token = turn.tokens.get(timer.path)
    waits = [] if token is None else list(token.waits)
    if turn.expires is not None:
        waits.append(turn.expires)
    return next((wait.due for wait in waits if wait.id == timer.wait and wait.due is not None), turn.now)


def _was_there(turn: Turn, path: str, token: Token) -> bool:
    known = turn.instance.state.tokens.get(path)
    return known is not None and known.step == token.step


def find_takers(turn: Turn, signal: EventArrived) -> list[Place]:
    """The steps that may still be reached and take the event; none for an event of the inbox or for one wait only."""
    program = turn.program
    if signal.token is not None or signal.kept or not is_known(program, signal.event):
        return []
    found = [program.places[node] for node in _ahead(turn) if signal.node in (None, node)]
    return [place for place in found if _keeps(program, place) and signal.event in names_taken(program, place)]


def _keeps(program: Program, place: Place) -> bool:
    wait = place.node.wait
    return program.policy.early if wait is None or wait.early is None else wait.early


def _ahead(turn: Turn) -> list[str]:
    """The nodes of tokens and of the timeout policy, and every node that edges and interrupts lead to from there."""
    last = turn.program.policy.on_timeout
    ahead = [*(token.node for token in turn.tokens.values()), *([] if last is None else [last])]
    found = list[str]()
    seen = set[str]()
    while ahead:
        node = ahead.pop()
        if node not in seen:
            seen.add(node)
            found.append(node)
            place = turn.program.places[node]
            ahead += [way.target for ways in place.ways.values() for way in ways]
            ahead += () if place.area is None else place.area.targets
    return found


def _check_actor(turn: Turn, takers: list[Place], event: str) -> None:
    """Refuse the event now, not silently later, if the actor may act on none of the steps."""
    refusal: Forbidden | None = None
    for place in takers:
        try:
            _refuse_actor(turn, place, event)
        except Forbidden as forbidden:
            refusal = refusal or forbidden
        else:
            return
    if refusal is not None:
        raise refusal


def _refuse_actor(turn: Turn, place: Place, event: str) -> None:
    check_actor(turn, place)
    ways = place.ways.get(event) or place.ways.get("completed") or ()
    if ways and not any(may_pass(turn, way) for way in ways):
        refuse_way(place, event, guarded=True)


def not_expected(event: str) -> Refused:
    return Refused(
        f"Nothing in this instance waits for {event!r}, now or later.",
        code="EVENT_NOT_EXPECTED",
        hint="Read the instance to see which steps are open and what they accept.",
    )


def _not_now(event: str) -> Refused:
    return Refused(
        f"Nothing in this instance waits for {event!r} now, and it is not to be kept.",
        code="EVENT_NOT_EXPECTED",
        hint="Send it without `early=False` and `if_version` to have it kept until a step waits for it.",
    )
