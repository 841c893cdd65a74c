"""A person answers where a workflow rests: what must hold before it is sent to the kernel, and the signal it becomes.

The signal names the visit it was checked against. Should the instance have gone on meanwhile, the kernel refuses it and
everything is read and asked again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.ids import token_id
from holdfast.core.program import Place, Program
from holdfast.core.signals import Actor, Decided, EventArrived
from holdfast.core.state import Token
from holdfast.core.status import Phase
from holdfast.errors import Conflict, HoldfastError, InputInvalid, Refused
from holdfast.runtime.answers import misfits_of_form
from holdfast.runtime.items import Item
from holdfast.runtime.schemas import told
from holdfast.runtime.steps.people import Person, needed_anywhere, require_right, task_of
from holdfast.runtime.steps.statuses import ACTIVE, shown_status
from holdfast.runtime.views import shown_id
from holdfast.store.needs import SignalContent
from holdfast.store.whereabouts import Whereabouts

TRIES: Final = 10
NOWHERE: Final = "-"  # a token nobody has: a signal with it is refused, unless it was applied before
_ENGINE_ONLY: Final = frozenset({"error", "timeout"})
_OVERTAKEN: Final = frozenset(
    {"TASK_OVER", "EVENT_NOT_EXPECTED", "INSTANCE_OVER", "INSTANCE_SUSPENDED", "INSTANCE_STOPPING", "STALE_ANSWER"}
)


class Advance(msgspec.Struct, frozen=True):
    instance: bytes
    signal: bytes
    event: str
    raw: bytes | None
    person: Person
    comment: str | None = None
    if_version: int | None = None

    @property
    def content(self) -> SignalContent:
        """What a repeated call must say: who sends the event and what comes with it, wherever the instance stands."""
        data = msgspec.Raw(b"null" if self.raw is None else self.raw)
        said = {"data": data, "comment": self.comment, "by": self.person.id}
        return SignalContent(self.instance, shown_id(self.signal), self.event, msgspec.json.encode(said), "advance")


def item_of(advance: Advance, found: Whereabouts, program: Program) -> Item:
    """The signal, for a request that may be made: else the reason why not."""
    _require_active(found)
    if not found.view.version:
        raise Conflict("The workflow has not been started yet.", code="INSTANCE_PENDING", hint="Try again in a moment.")
    if advance.if_version not in (None, found.view.version):
        raise Conflict(
            f"The instance is at version {found.view.version}, not {advance.if_version}.",
            code="VERSION_CONFLICT",
            hint="Read it again and decide on what you see then.",
        )
    name, token, place = _expected(advance, found, program)
    _check_form(place, advance)
    task = task_of(token)
    roles = None if advance.person.roles is None else tuple(sorted(advance.person.roles))
    if task is None:
        signal = EventArrived(
            advance.signal, advance.event, advance.raw, None, name, advance.if_version, comment=advance.comment
        )
    else:
        signal = Decided(advance.signal, task, advance.event, advance.raw, advance.comment, roles, advance.if_version)
    given = advance.person.capabilities
    held = tuple(sorted(needed_anywhere(place) if given is None else given))
    actor = Actor(advance.person.id, held, roles or ())
    return _item(advance, signal, actor)


def repeat_of(advance: Advance) -> Item:
    """A signal that changes nothing: it is answered if this very request was applied before, and refused otherwise."""
    return _item(advance, EventArrived(advance.signal, advance.event, token=NOWHERE), Actor(advance.person.id))


def is_overtaken(refusal: HoldfastError) -> bool:
    """The instance went on between the look at it and the commit."""
    return refusal.code in _OVERTAKEN


def reworded(refusal: HoldfastError) -> HoldfastError:
    """In the words of workflows."""
    if refusal.code == "SIGNAL_ID_REUSED":
        return Conflict(
            "The id or key of this request was already used for another one to this instance.",
            code="IDEMPOTENCY_KEY_REUSED",
            hint="Use a new one for a new request.",
        )
    if refusal.code in ("NO_EDGE_MATCHED", "DECISION_NOT_OFFERED"):
        return Refused(refusal.message, code="INVALID_TRANSITION", hint=refusal.hint)
    return refusal


def _item(advance: Advance, signal: Decided | EventArrived, actor: Actor) -> Item:
    return Item(advance.instance, signal, actor, receipt=shown_id(advance.signal), content=advance.content)


def _require_active(found: Whereabouts) -> None:
    status = shown_status(found.view.status)
    if status != ACTIVE:
        raise Conflict(
            f"The workflow is {status}.",
            code="WORKFLOW_NOT_ACTIVE",
            hint="Resume it first." if status == "suspended" else "Start a new one.",
            status=status,
        )


def _expected(advance: Advance, found: Whereabouts, program: Program) -> tuple[str, Token, Place]:
    """The one visit that takes the event. Whoever may not act here is not told what it would take."""
    event = advance.event
    resting = [(p, t, program.places[t.node]) for p, t in found.state.tokens.items() if t.phase is Phase.RESTING]
    taking = [(path, token, place) for path, token, place in resting if _takes(token, place, event)]
    if len(taking) > 1:
        names = ", ".join(sorted(place.id for _, _, place in taking))
        raise Conflict(
            f"Several steps wait for {event!r}: {names}.",
            code="EVENT_AMBIGUOUS",
            hint="Decide the task that is meant instead.",
        )
    for _, _, place in taking or resting[:1]:
        require_right(place, advance.person, found.view.created_by)
    if not taking:
        offered = sorted({on for _, token, place in resting for on in events_of(token, place)})
        raise Refused(
            f"{event!r} leads nowhere from where the workflow stands.",
            code="INVALID_TRANSITION",
            hint=f"It takes {', '.join(offered)}." if offered else "A system step is under way; wait until it rests.",
            allowed=offered,
        )
    path, token, place = taking[0]
    return token_id(path, token.hop), token, place


def _takes(token: Token, place: Place, event: str) -> bool:
    return event in events_of(token, place)


def events_of(token: Token, place: Place) -> set[str]:
    """The names somebody outside can send here. `completed` is a person's only where a person is asked."""
    reserved = _ENGINE_ONLY if task_of(token) is not None else _ENGINE_ONLY | {"completed"}
    return {*(place.ways.keys() - reserved), *(wait.event for wait in token.waits if wait.event is not None)}


def _check_form(place: Place, advance: Advance) -> None:
    if place.node.form is None:
        return
    misfits = misfits_of_form(place.node.form, place.id, advance.event, advance.raw)
    if misfits:
        raise InputInvalid(
            f"The input does not fit the form of {place.id!r}: {told(misfits)}",
            code="FORM_INVALID",
            hint="Read the instance for its form.",
            misfits=misfits,
        )
