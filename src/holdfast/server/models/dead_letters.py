"""Models of dead letters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import ConfigDict, Field

from holdfast.runtime.ops.dead_letters import Resolved
from holdfast.server.models.base import LetterInputs, Model, Moment, Wish, Words


class DeadLetterView(Model):
    """A signal, a step or an effect nothing could be done with. `envelope` is what it was, `error` what it met."""

    id: UUID
    instance_id: UUID
    flow: str
    step: str | None
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


class RequeueMany(Wish):
    """Put back several, steps also with other inputs. The steps of one instance run again in one commit."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ids": ["01a1e467-b607-7918-bb52-4d3ec10b39cc", "01a1e467-b60b-7c5e-9f3a-0d7f1b2c4e11"],
                    "inputs": {"01a1e467-b607-7918-bb52-4d3ec10b39cc": {"order_id": "ord-124"}},
                    "reason": "The service is up again.",
                }
            ]
        },
    )

    ids: list[UUID] = Field(min_length=1, max_length=1000)
    inputs: LetterInputs | None = None
    reason: Words | None = None
    dry_run: bool = Field(default=False, strict=True)


class LetterRefusal(Model):
    """The reason for which a dead letter was not put back."""

    id: UUID
    code: str
    message: str
    hint: str


class Resolution(Model):
    """The letters that were put back or let go, and those that were left because nothing could be done. `refusals` has
    the reasons, also for letters that had been settled before."""

    ids: list[UUID]
    left: list[UUID]
    dry_run: bool
    refusals: list[LetterRefusal]

    @classmethod
    def told(cls, done: Resolved) -> Resolution:
        refusals = [
            LetterRefusal(id=UUID(id), code=each.code, message=each.message, hint=each.hint)
            for id, each in done.refusals.items()
        ]
        ids, left = [UUID(id) for id in done.ids], [UUID(id) for id in done.left]
        return cls(ids=ids, left=left, dry_run=done.dry_run, refusals=refusals)
