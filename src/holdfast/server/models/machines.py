"""Models of machines: imports, charts, triggers and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from holdfast.server.models.base import Key, Model, Moment, Name, WholeCount, WholeVersion, Wish
from holdfast.server.models.definitions import Finding, PublishedView

MOST_EVENTS = 1000  # of one simulation, of one past
EventName = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]+$")]
EventRef = EventName | WholeCount
RequestId = Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=r"^[^\x00]+$")]
Reason = Literal["not_applicable", "condition", "terminal", "not_active", "blocked", "overtaken"]


class MachineImport(Model):
    """The version that was published; after a dry run, the one that would be. `warnings` deserve a look."""

    dry_run: bool
    published: PublishedView
    warnings: list[Finding]


class MachineVersion(Model):
    """A machine in its newest version. `name` is that of its flow: the environment, a dot and the definition."""

    environment: str
    definition: str
    org: str = Field(description="The tenant it belongs to, `_system` if it is shared.")
    name: str
    version: int
    kind: str
    status: Literal["draft", "published", "archived"]
    hash: str
    compiler_version: str
    created_by: str | None
    published_at: Moment


class MachineStateView(Model):
    """A state. Instances begin in the initial one, and end in a final one."""

    name: str
    category: str | None
    is_initial: bool
    is_final: bool


class MachineEventView(Model):
    """An event by its code and its name."""

    code: int
    name: str


class MachineVersionNumber(Model):
    """One of the versions of a machine."""

    version: int
    hash: str
    created_by: str | None
    published_at: Moment


class MachineDocument(Model):
    """One version of a machine, with the blueprint and the policy it was imported from.

    `versions` are the newest ones; `GET /api/v1/definitions/{name}/versions` has all of them, page by page.
    """

    environment: str
    definition: str
    version: int
    blueprint_version: int
    policy_name: str | None
    hash: str
    created_by: str | None
    published_at: Moment
    states: list[MachineStateView]
    events: list[MachineEventView]
    blueprint: Any
    policy: Any
    versions: list[MachineVersionNumber]


class SimulatedEvent(Wish):
    """An event with its payload."""

    event: EventRef
    payload: Any = None


class Simulate(Wish):
    """Events to try, each by its code, its name or with a payload. `now` is the time that conditions read."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"events": [1000, "Validated"]}]})

    events: list[EventRef | SimulatedEvent] = Field(max_length=MOST_EVENTS)
    version: WholeVersion | None = Field(default=None, description="The version of the machine; else the newest.")
    actor: Name = "simulation"
    capabilities: list[Name] = Field(default_factory=list, max_length=100)
    now: Moment | None = None
    data: dict[str, Any] | None = Field(default=None, description="The context an instance begins with.")


class SimulatedEntryView(Model):
    """The answer to one event: where it led and the rule of that entry, or the reason why it does not apply."""

    from_state: str
    to_state: str
    event: str
    code: int
    applied: bool
    reason: str | None
    rule: Any


class SimulationView(Model):
    """The way of an instance that exists only in this answer."""

    initial: str
    state: str
    states: list[str]
    entries: list[SimulatedEntryView]
    is_over: bool
    data: Any


class SendTrigger(Wish):
    """An event for the instance of a reference, which is made if it is not there yet."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"external_ref": "V-17", "event": "Validated", "payload": {"score": 95}, "request_id": "r-1"}]
        }
    )

    external_ref: Key = Field(description="The business object.")
    event: EventRef = Field(description="By its name or its code.")
    payload: Any = None
    request_id: RequestId | None = Field(
        default=None, description="Sent again, it counts once and gets the same answer; or the header Idempotency-Key."
    )
    expected: WholeCount | None = Field(
        default=None, description="Apply it only if the instance is still at this entry: `lifecycle` of an answer."
    )
    version: WholeVersion | None = Field(default=None, description="The version of the blueprint; else the newest.")
    ack_required: StrictBool = Field(default=True, description="No: its facts are sent once, and nobody answers.")
    occurred_at: Moment | None = None


class TriggerView(Model):
    """The answer to a trigger. One that is not applied has a reason and changes nothing."""

    applied: bool
    reason: Reason | None
    from_state: str | None
    to_state: str | None
    event: str
    lifecycle: int | None = Field(description="The number of the entry the instance is at.")
    instance: UUID


class MachineInstanceView(Model):
    """The instance of a reference. `lifecycle` is the number of the entry it rests in."""

    id: UUID
    environment: str
    definition: str
    external_ref: str
    flow_version: int
    status: str
    reason: str | None
    state: str | None
    lifecycle: int
    last_event: str | None
    data: Any
    blocked_by: list[str] = Field(description="Hooks of the gates that are open.")
    open_acks: int


class PastEvent(Wish):
    """An event that has happened."""

    event: EventRef
    occurred_at: Moment
    payload: Any = None
    by: Name | None = None


class Backfill(Wish):
    """The past of an object that is new to its machine, in its order."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"external_ref": "V-3", "events": [{"event": 1000, "occurred_at": "2026-05-01T09:30:00Z"}]}]
        }
    )

    external_ref: Key
    events: list[PastEvent] = Field(min_length=1, max_length=MOST_EVENTS)
    version: WholeVersion | None = Field(default=None, description="The version of the blueprint; else the newest.")
