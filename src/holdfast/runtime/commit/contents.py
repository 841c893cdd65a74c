"""Contents of items: what a repeat under the same id is compared with."""

from __future__ import annotations

import contextlib

import msgspec

from holdfast.core.machine.triggers import event_of
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Acknowledged, Backfilled, Decided, EventArrived, Triggered
from holdfast.errors import Refused
from holdfast.runtime.commit.items import Item
from holdfast.store.commit.needs import SignalContent
from holdfast.store.tasks import decision_content


def content_of(item: Item, program: Program | None) -> SignalContent | None:
    """The content that a repeat of the item must have. Events of machines are compared by name, however written."""
    signal = item.signal
    if item.receipt is None or item.content is not None:
        return item.content
    if isinstance(signal, Decided):
        return decision_content(item.instance, item.receipt, signal)
    if isinstance(signal, Acknowledged):
        then = signal.then
        event, raw = ("", None) if then is None else (_name_of(program, then.event), then.raw)
        return SignalContent(item.instance, item.receipt, event, raw, None)
    if isinstance(signal, Backfilled):
        return SignalContent(item.instance, item.receipt, "backfill", msgspec.json.encode(signal), None)
    if isinstance(signal, Triggered):
        said = None if signal.expected is None else str(signal.expected)
        return SignalContent(item.instance, item.receipt, _name_of(program, signal.event), signal.raw, said)
    if isinstance(signal, EventArrived):
        return SignalContent(item.instance, item.receipt, signal.event, signal.raw, signal.node)
    return SignalContent(item.instance, item.receipt, type(signal).__name__, None, None)  # its id is unique


def _name_of(program: Program | None, event: str | int) -> str:
    """The name of an event; an unknown one is refused later, and compared as it was written."""
    if program is not None:
        with contextlib.suppress(Refused):
            return event_of(program, event)
    return str(event)
