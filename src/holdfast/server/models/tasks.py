"""The tasks of people."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from holdfast.server.models.base import Model, Moment, Name, Wish, Words

TaskStatus = Literal["open", "assigned", "claimed", "completed", "cancelled", "expired"]


class TaskView(Model):
    """Work for a person, and its outcome. `form` is the JSON Schema of the data to fill in."""

    id: UUID
    instance_id: UUID
    flow: str
    node: str
    token: str
    status: TaskStatus
    roles: list[str]
    assignee: str | None
    priority: int
    due_at: Moment | None
    form: Any
    payload: Any
    decision: str | None
    comment: str | None
    data: Any
    decided_by: str | None
    reason: str | None
    version: int
    org: str
    step_id: UUID
    created_at: Moment
    updated_at: Moment
    closed_at: Moment | None


class TaskEventView(Model):
    """One line of a task's history."""

    ordinal: int
    type: str
    actor: str | None
    assignee: str | None
    reason: str | None
    detail: Any
    created_at: Moment


class Handing(Wish):
    """The person who gets the task."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"to": "bob@acme.example", "reason": "On holiday."}]},
    )

    to: Name
    reason: Words | None = None


class Decide(Wish):
    """A decision the step offers, such as approved or rejected, with what its form asks for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"decision": "approved", "comment": "Fine.", "data": {"approval_notes": "Looks good"}}]
        },
    )

    decision: Name
    comment: Words | None = None
    data: Any = Field(default=None, description="Checked against the form of the step.")
