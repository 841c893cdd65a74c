"""A signal that came too late is refused, and its instance remembers that it came."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from holdfast.core.model.signals import EventArrived, Signal
from holdfast.errors import Conflict
from holdfast.store.pg.session import Session
from holdfast.store.queue.notes import note_event
from holdfast.store.queue.signals import Later


@asynccontextmanager
async def noted_refusal(
    session: Session, instance: bytes, signal: Signal | Later, actor: str | None
) -> AsyncGenerator[None]:
    """Note a signal refused by an ended instance in its audit trail."""
    try:
        yield
    except Conflict as refusal:
        if refusal.code == "INSTANCE_OVER":
            name = signal.event if isinstance(signal, EventArrived | Later) else type(signal).__name__.lower()
            detail = {"code": refusal.code, "signal": name}
            await note_event(session, instance, "signal_refused", actor or "system", detail)
        raise
