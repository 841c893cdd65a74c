"""What was given up on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import ConfigDict

from holdfast.server.models.base import Model, Moment, Wish, Words


class DeadLetterView(Model):
    """A signal, a step or an effect nothing could be done with. `envelope` is what it was, `error` what it met."""

    id: UUID
    instance_id: UUID
    source: str
    reason: str
    envelope: Any
    error: Any
    attempts: int
    worker: UUID | None
    created_at: Moment
    resolved_at: Moment | None
    resolution: str | None
    resolved_by: str | None
    resolved_why: str | None


class Requeue(Wish):
    """Put it back, a step also with another input."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "The service is up again.", "input": {"order_id": "ord-124"}}]},
    )

    reason: Words | None = None
    input: Any = None


class Resolution(Model):
    """The letters that were put back or let go, and those that were left because nothing could be done."""

    ids: list[UUID]
    left: list[UUID]
    dry_run: bool
