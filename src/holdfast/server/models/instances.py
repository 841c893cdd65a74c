"""Instances, their steps, events and timeline."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, StrictBool, WithJsonSchema

from holdfast.server.models.base import Key, LetterInputs, Model, Moment, Name, Whole, WholeVersion, Wish, Words

Status = Literal[
    "pending", "running", "suspended", "dlq", "rolling_back", "completed", "failed", "cancelled", "aborted"
]

INSTANCE_EXAMPLE: dict[str, Any] = {
    "id": "0197a2c4-5d1e-7c3a-9b7e-2f40c1a5d6ee",
    "org": "acme",
    "flow": "orders.approval",
    "flow_version": 1,
    "status": "running",
    "version": 1,
    "data": {"order_id": "ord-123"},
    "input": {"order_id": "ord-123"},
    "reason": None,
    "key": None,
    "business_key": "ord-123",
    "parent_id": None,
    "waiting_for": "event",
    "waiting_until": None,
    "error": None,
    "created_by": "alice@acme.example",
    "created_at": "2026-05-01T09:30:00Z",
    "updated_at": "2026-05-01T09:30:00Z",
    "completed_at": None,
    "attributes": None,
}


class InstanceView(Model):
    """One run of a flow. `data` is what its steps have gathered; `version` rises with every change."""

    model_config = ConfigDict(json_schema_extra={"examples": [INSTANCE_EXAMPLE]})

    id: UUID
    org: str = Field(description="The tenant it belongs to.")
    flow: str
    flow_version: int
    status: Status
    version: int
    data: Any
    input: Any
    reason: str | None
    key: str | None
    business_key: str | None
    parent_id: UUID | None
    waiting_for: str | None
    waiting_until: Moment | None
    error: Any
    created_by: str | None
    created_at: Moment | None
    updated_at: Moment | None
    completed_at: Moment | None
    attributes: Any


class StepView(Model):
    """One visit of one node. `token` tells the visits of parallel branches apart."""

    id: UUID
    name: str
    behaviour: str
    token: str
    kind: str
    run: int
    status: str
    outcome: str | None
    failed: bool = Field(description="The step itself failed, whatever was done about it since.")
    undo: Literal["running", "done", "failed"] | None = Field(
        description="What became of taking it back. `failed`: it was done, and could not be taken back."
    )
    cause: str
    attempts: int
    input: Any
    output: Any
    error: Any
    chosen_edge_ids: list[str] | None
    detail: Any
    closing: Any
    opened: tuple[int, int] = Field(description="Version of the instance, and the place within its commit.")
    closed: tuple[int, int] | None
    opened_by: str | None
    closed_by: str | None
    created_at: Moment
    closed_at: Moment | None


class EventView(Model):
    """One line of the audit trail; (`version`, `created_at`, `ordinal`) is its place in it."""

    version: int
    ordinal: int
    type: str
    node: str | None
    token: str | None
    actor: str | None
    detail: Any
    created_at: Moment


class EntryView(Model):
    """One line of the timeline: a step from its opening to its end, or a moment at which something happened."""

    at: Moment
    until: Moment | None
    seconds: float | None
    kind: Literal["step", "event", "task"]
    name: str
    token: str | None
    status: str | None
    failed: bool | None = Field(description="Of a step: it failed itself, whatever was done about it since.")
    undo: Literal["running", "done", "failed"] | None = Field(description="Of a step: what became of taking it back.")
    actor: str | None
    attempts: int | None
    detail: Any


class Timeline(Model):
    """The events of an instance, in order. `truncated`: there are more than these."""

    instance: InstanceView
    entries: list[EntryView]
    truncated: bool


# Said by hand: what pydantic makes of constrained keys lets a key that breaks the pattern have any value.
Attributes = Annotated[
    dict[Name, str | Whole | StrictBool | None],
    Field(max_length=50),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": 50,
            "propertyNames": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^\x00]+$"},
            "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
        }
    ),
]


class Start(Wish):
    """The flow to start, and its input."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"flow": "orders.approval", "input": {"order_id": "ord-123"}}]},
    )

    flow: Name
    input: Any = Field(default=None, description="What the instance begins with; none is an empty object.")
    version: WholeVersion | None = Field(default=None, description="None: the newest published one.")
    business_key: Key | None = None
    attributes: Attributes | None = None


class SendSignal(Wish):
    """An event for one instance. `node` or `token` say which step is meant where several wait for it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event": "payment_received", "payload": {"amount": "19.90"}}]},
    )

    event: Name
    payload: Any = None
    node: Name | None = None
    token: Name | None = None
    at: Moment | None = Field(default=None, description="Keep it until then instead of sending it at once.")
    early: bool = Field(default=True, description="false: refuse it where no step waits for it now.")


class Why(Wish):
    """The reason for a request; it is kept in the audit trail."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "The customer called."}]})

    reason: Words | None = None


class Rerun(Wish):
    """The step from which an instance is to run again; a field left out stays as it was."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"from_step": "reserve", "reason": "The warehouse is back."}]},
    )

    from_step: Name
    input: Any = None
    token: Name | None = None
    reason: Words | None = None


class RequeueLetters(Wish):
    """Put back what the open dead letters of an instance are about, steps also with other inputs."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "Fixed.", "dry_run": False}]})

    reason: Words | None = None
    inputs: LetterInputs | None = None
    dry_run: bool = Field(default=False, strict=True)
