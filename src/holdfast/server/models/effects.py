"""Effects: what the engine does to the outside world."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from holdfast.server.models.base import Model, Moment

EffectStatus = Literal["pending", "processing", "completed", "failed", "dead_letter"]


class EffectView(Model):
    """One effect, with the evidence of its last attempt. `key` is the same at every attempt."""

    id: UUID
    instance_id: UUID
    token: str
    kind: str
    target: str
    key: str
    awaited: bool
    status: EffectStatus
    attempts: int
    max_attempts: int
    next_attempt_at: Moment | None
    data: Any
    evidence: Any
    error: Any
    created_at: Moment
    completed_at: Moment | None
