"""History at the edge: past events as a caller passes them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, cast

from holdfast.core.decide import decide
from holdfast.core.machine.backfill import MOST
from holdfast.core.model.decision import Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Backfilled, PastEvent
from holdfast.core.model.state import EMPTY, Instance
from holdfast.core.model.status import InstanceStatus
from holdfast.errors import Refused
from holdfast.runtime.machines.triggers import take_event, take_occurred, take_raw
from holdfast.runtime.validation import check_text

KEYS = frozenset({"event", "occurred_at", "payload", "by"})


def take_history(history: Iterable[Any]) -> tuple[PastEvent, ...]:
    """Check past events: in their order, each with its moment."""
    events = tuple(_event(given, number) for number, given in enumerate(history))
    if not 1 <= len(events) <= MOST:
        raise _wrong(f"A past has 1 to {MOST} events, not {len(events)}.", "events")
    for number, (before, after) in enumerate(pairwise(events), start=1):
        if after.occurred_at < before.occurred_at:
            raise _wrong(f"Event {number + 1} happened before the one it follows.", f"events[{number}]")
    return events


def try_history(program: Program, signal: Backfilled) -> None:
    """Refuse a past that the machine could not have had."""
    blank = Instance(
        id=bytes(16), org="", definition=b"", flow=program.name, flow_version=program.version, version=0,
        status=InstanceStatus.PENDING, state=EMPTY, data=b"{}",
    )  # fmt: skip
    decide(program, blank, signal, Facts(signal.events[-1].occurred_at))


def _event(given: Any, number: int) -> PastEvent:
    place = f"events[{number}]"
    if not isinstance(given, Mapping):
        raise _wrong("A past event is an object.", place)
    event = cast(Mapping[str, Any], given)
    if unknown := sorted(set(event) - KEYS):
        raise _wrong(f"A past event has no {unknown[0]!r}; it has {', '.join(sorted(KEYS))}.", place)
    moment = event.get("occurred_at")
    if isinstance(moment, str):
        moment = _parsed(moment, place)
    occurred_at = take_occurred(moment)
    if occurred_at is None:
        raise _wrong("A past event says when it happened.", f"{place}.occurred_at")
    name = take_event(event.get("event"))
    check_text(event.get("by"), "actor")
    return PastEvent(name, occurred_at, take_raw(event.get("payload"), name), event.get("by"))


def _parsed(text: str, place: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _wrong(f"{text[:40]!r} is no moment.", f"{place}.occurred_at") from None


def _wrong(message: str, place: str) -> Refused:
    return Refused(
        message, code="BACKFILL_INVALID", hint="Give events in their order, with `occurred_at`.", place=place
    )
