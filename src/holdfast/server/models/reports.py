"""Models of notices, activities and the lifecycle of machines."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, StringConstraints

from holdfast.server.models.base import Model, Moment, WholeCount, Wish

NoticeKind = Literal["info", "warn", "overdue", "error"]
ShortName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]+$")]


class NoticeView(Model):
    """A message of the engine to operators. `code` says what it is about, `detail` has the facts."""

    id: UUID
    code: str = Field(examples=["DEFAULT_STATE_STALE"])
    kind: NoticeKind
    message: str
    instance_id: UUID | None
    consumer: str | None
    detail: Any
    created_at: Moment


class ActivityView(Model):
    """Work of an application in a state, as it reports it. `entry` is the number of the entry it belongs to."""

    id: UUID
    instance_id: UUID
    entry: int | None
    state: str | None
    name: str
    actor: str
    status: str
    data: Any
    frozen: bool
    created_at: Moment
    updated_at: Moment


class WriteActivity(Wish):
    """The status of some work, written over the one before of the same entry, name and caller."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "Internal Review", "status": "Approved", "data": {"pages": 7}}]}
    )

    name: ShortName
    status: ShortName
    entry: Literal["present", "none"] | WholeCount = Field(
        default="present", description="The number of an entry of the lifecycle, the present one, or none."
    )
    data: Any = Field(default=None, description="Without it, the earlier data stays.")


class LifecycleInstanceView(Model):
    """The instance of a lifecycle."""

    id: UUID
    guid: UUID
    external_ref: str | None
    definition: str
    environment: str | None
    flow: str
    definition_version: int
    blueprint_version: int | None
    status: str
    current_state: str | None
    last_event: str | None
    created_at: Moment
    modified_at: Moment


class LifecycleEntryView(Model):
    """One entry into a state. Number 0 is the start and has no event."""

    number: int
    id: UUID
    from_state: str | None
    to_state: str
    event: str | None
    event_code: int | None
    actor: str | None
    payload: Any
    occurred_at: Moment
    created_at: Moment
    activities: list[ActivityView]


class LifecycleView(Model):
    """The lifecycle of one machine. `truncated`: there are earlier entries, or activities, than these."""

    instance: LifecycleInstanceView
    entries: list[LifecycleEntryView]
    other_activities: list[ActivityView]
    truncated: bool
