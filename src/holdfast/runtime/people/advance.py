"""A person's answer to a resting workflow: the checks before it goes to the kernel, and the signal it becomes.

The signal names the visit it was checked against. If the instance has moved meanwhile, the kernel refuses it, and the
instance is read and checked again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Place, Program
from holdfast.core.model.signals import Actor, Decided, EventArrived
from holdfast.core.model.state import Token
from holdfast.core.model.status import Phase
from holdfast.errors import Busy, Conflict, HoldfastError, InputInvalid, Refused
from holdfast.runtime.commit.items import Item
from holdfast.runtime.people.forms import misfits_of_form
from holdfast.runtime.people.visibility import Person, needed_anywhere, require_right, task_of
from holdfast.runtime.reads.views import shown_id
from holdfast.runtime.schemas.schemas import told
from holdfast.store.commit.needs import SignalContent
from holdfast.store.reads.positions import Whereabouts
from holdfast.views.statuses import ACTIVE, shown_status

NOWHERE: Final = "-"  # no token has it: a signal with it is refused, unless it was applied before
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
        """Content that a repeated call must match: the sender of the event and its data, at any step of the
        instance.
        """
        data = msgspec.Raw(b"null" if self.raw is None else self.raw)
        said = {"data": data, "comment": self.comment, "by": self.person.id}
        return SignalContent(self.instance, shown_id(self.signal), self.event, msgspec.json.encode(said), "advance")


async def item_of(advance: Advance, found: Whereabouts, program: Program) -> Item:
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
    await _check_form(place, advance)
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
    """Check whether the instance moved between the check and the commit, or was locked all the while."""
    return refusal.code in _OVERTAKEN or isinstance(refusal, Busy)


def reworded(refusal: HoldfastError) -> HoldfastError:
    """Rephrase a refusal in the words of workflows."""
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
    """Find the one visit that takes the event. A caller without the right to act does not learn which events it
    takes.
    """
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
    """Names that a sender outside can use here. `completed` is a person's only where a person is asked."""
    reserved = _ENGINE_ONLY if task_of(token) is not None else _ENGINE_ONLY | {"completed"}
    return {*(place.ways.keys() - reserved), *(wait.event for wait in token.waits if wait.event is not None)}


async def _check_form(place: Place, advance: Advance) -> None:
    if place.node.form is None:
        return
    misfits = await misfits_of_form(place.node.form, place.id, advance.event, advance.raw)
    if misfits:
        raise InputInvalid(
            f"The input does not fit the form of {place.id!r}: {told(misfits)}",
            code="FORM_INVALID",
            hint="Read the instance for its form.",
            misfits=misfits,
        )
