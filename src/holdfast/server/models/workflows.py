"""Workflows as front ends see them."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from holdfast.server.models.base import Model, Moment, Name, Wish, Words

Status = Literal["active", "completed", "failed", "cancelled", "suspended"]

_ID = "0197a2c4-5d1e-7c3a-9b7e-2f40c1a5d6ee"
_STATE = {"order_id": "ord-123", "customer_email": "bob@example.com"}
_TIMES = {
    "created_at": "2026-05-01T09:30:00Z",
    "updated_at": "2026-05-01T09:30:00Z",
    "expires_at": "2026-05-04T09:30:00Z",
}
_WORKFLOW: dict[str, Any] = {
    "id": _ID,
    "workflow_id": "orders.approval",
    "tenant_id": "acme-corp",
    "partition_id": None,
    "subject_id": "alice@acme.example",
    "current_step": "review",
    "status": "active",
    "reason": None,
    "state": _STATE,
    "version": 1,
    **_TIMES,
}
_DESCRIPTOR: dict[str, Any] = {
    "id": _ID,
    "workflow": {"id": "orders.approval", "name": "Order approval", "version": 1},
    "status": "active",
    "current_step": {"id": "review", "name": "Review", "type": "approval", "roles": ["approver"]},
    "allowed_events": ["approved", "rejected"],
    "steps": [{"id": "review", "name": "Review", "type": "approval", "status": "current"}],
    "state": _STATE,
    "version": 1,
    "tenant_id": "acme-corp",
    "subject_id": "alice@acme.example",
    "partition_id": None,
    "correlation_id": "4f0c9f1a2b3c4d5e",
    "business_key": None,
    "reason": None,
    **_TIMES,
    "completed_at": None,
    "history": [
        {"event": "step_entered", "step": "review", "actor": "alice@acme.example", "timestamp": "2026-05-01T09:30:00Z"}
    ],
}


class Advance(Wish):
    """An event at the current step, with the data its form asks for."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event": "approved", "input": {"approval_notes": "Looks good"}}]}
    )

    event: Name
    input: dict[str, Any] | None = None
    comment: Words | None = None


class Cancellation(Wish):
    """The reason for cancelling a workflow."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "The customer asked for it."}]})

    reason: Words | None = None


class WorkflowInstance(Model):
    """One run of a workflow: its current step and the data it has gathered."""

    model_config = ConfigDict(json_schema_extra={"examples": [_WORKFLOW]})

    id: UUID
    workflow_id: str
    tenant_id: str
    partition_id: str | None
    subject_id: str | None = Field(description="Who started it.")
    current_step: str | None = Field(description="Where it stands, or where it ended.")
    status: Status
    reason: str | None = Field(description="Why it is suspended, failed or cancelled, if it is.")
    state: Any = Field(description="What start and the steps have gathered.")
    version: int = Field(ge=0, description="Rises with every change; the ETag of the answer.")
    created_at: Moment | None
    updated_at: Moment | None
    expires_at: Moment | None


class WorkflowName(Model):
    """The definition an instance is pinned to."""

    id: str
    name: str
    version: int


class CurrentStep(Model):
    """The step the workflow is at, with its form and the people it waits for."""

    id: str
    name: str
    type: str = Field(examples=["action", "approval", "system", "wait", "notification", "terminal"])
    form: Any = Field(default=None, description="A JSON Schema of what the person fills in.")
    assignee: str | None = None
    roles: list[str] = Field(default_factory=list)
    due_at: Moment | None = None
    task_id: UUID | None = None


class VisibleStep(Model):
    """One step of the workflow, for a progress bar."""

    id: str
    name: str
    type: str
    status: str = Field(examples=["upcoming", "current", "completed", "failed", "skipped"])


class HistoryEntry(Model):
    """One thing that happened; `step` is null where the whole workflow is meant."""

    event: str = Field(examples=["step_entered", "approved", "timeout", "workflow_completed"])
    step: str | None
    actor: str
    timestamp: Moment | None
    data: Any = None
    comment: str | None = None


class WorkflowDescriptor(Model):
    """A workflow as one person may see it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DESCRIPTOR]})

    id: UUID
    workflow: WorkflowName
    status: Status
    current_step: CurrentStep | None
    allowed_events: list[str] = Field(description="What this person may send to advance it.")
    steps: list[VisibleStep]
    state: Any
    version: int = Field(ge=0)
    tenant_id: str
    subject_id: str | None
    partition_id: str | None
    correlation_id: str | None
    business_key: str | None
    reason: str | None
    created_at: Moment | None
    updated_at: Moment | None
    completed_at: Moment | None
    expires_at: Moment | None
    history: list[HistoryEntry]


class WorkflowSummary(Model):
    """A workflow in a list: what a person needs to pick one."""

    id: UUID
    workflow: WorkflowName
    status: Status
    current_step: str | None = Field(description="Null when it is over.")
    current_step_name: str | None
    subject_id: str | None
    partition_id: str | None
    business_key: str | None
    version: int = Field(ge=0)
    created_at: Moment | None
    updated_at: Moment | None
    expires_at: Moment | None
