"""Models of events by key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import ConfigDict

from holdfast.server.models.base import Key, Model, Name, Wish


class SendEvent(Wish):
    """An event for every wait with that key, in whichever instance."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"event": "payment_received", "key": "order-17", "payload": {"amount": "19.90"}}]
        },
    )

    event: Name
    key: Key
    payload: Any = None


class SentEvent(Model):
    """An event as it is kept. `id` is the same for the same Idempotency-Key."""

    id: UUID
    event: str
    key: str
