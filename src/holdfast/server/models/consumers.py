"""Models of consumers, and of the facts they take and answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints

from holdfast.runtime.consumers.receiving import LONGEST_WAIT, MOST
from holdfast.runtime.consumers.registering import IN_FLIGHT, LONGEST_TTL, MOST_ATTEMPTS, MOST_IN_FLIGHT
from holdfast.server.models.base import Model, Moment, Name, Wish, Words, take_whole
from holdfast.server.models.machines import EventRef, TriggerView

EnvironmentName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00./]+$")]
ConsumerName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00/]+$")]
Names = Annotated[list[Name], Field(max_length=1000)]
Ack = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_-]+$")]
Seconds = Annotated[float, Field(strict=True)]
MostFacts = Annotated[int, Field(ge=1, le=MOST)]
Attempts = Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)]
InFlight = Annotated[int, Field(ge=1, le=MOST_IN_FLIGHT)]
WholeFacts = Annotated[MostFacts, Field(strict=True), BeforeValidator(take_whole, json_schema_input_type=MostFacts)]
WholeAttempts = Annotated[Attempts, Field(strict=True), BeforeValidator(take_whole, json_schema_input_type=Attempts)]
WholeInFlight = Annotated[InFlight, Field(strict=True), BeforeValidator(take_whole, json_schema_input_type=InFlight)]
LONGEST_DELAY = 100 * 365 * 86_400.0


class RegisterConsumer(Wish):
    """A consumer and its settings. A filter that is left out takes all."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"environment": "prod", "name": "billing", "definitions": ["vendor"]}]}
    )

    environment: EnvironmentName
    name: ConsumerName
    way: Literal["pull", "push"] = "pull"
    target: dict[str, Any] | None = Field(
        default=None, description="Of a push: `url`, and perhaps `secret`, `signed` and `headers`."
    )
    definitions: Names | None = None
    states: Names | None = None
    events: Names | None = None
    hooks: Names | None = None
    transitions: StrictBool = Field(default=True, description="Take transitions, and the completion of gates.")
    takes_hooks: StrictBool = True
    since: Literal["now", "beginning"] | Moment = Field(
        default="now", description="Facts from then on; counts for the first registration."
    )
    ttl: Annotated[Seconds, Field(ge=1, le=LONGEST_TTL)] | None = None
    max_attempts: WholeAttempts | None = None
    in_flight: WholeInFlight = IN_FLIGHT
    critical: StrictBool = Field(default=True, description="A delivery that failed suspends its instance.")


class ConsumerView(Model):
    """One consumer, and how far it is behind."""

    id: UUID
    environment: str
    name: str
    way: Literal["here", "push", "pull"]
    definitions: list[str] | None
    states: list[str] | None
    events: list[str] | None
    hooks: list[str] | None
    takes_transitions: bool
    takes_hooks: bool
    critical: bool
    ttl: float
    max_attempts: int
    in_flight: int
    target: dict[str, Any] | None
    owner: str | None = Field(description="The subject that registered it; null: the engine itself.")
    since: Moment
    filling: bool = Field(description="It is being given past facts, and gets nothing meanwhile.")
    registered_at: Moment
    beat_at: Moment
    down_since: Moment | None = Field(description="Null while it lives.")
    open: int = Field(description="Facts without an end; 10,001 stands for more than 10,000.")
    behind: float | None = Field(description="Seconds since the oldest of them.")


class OfEnvironment(Wish):
    """The environment of the consumer."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"environment": "prod"}]})

    environment: EnvironmentName


class Receive(OfEnvironment):
    """A poll for facts: at most so many; without any, wait for them for so many seconds."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"environment": "prod", "most": 50, "wait": 20}]})

    most: WholeFacts = 50
    wait: Annotated[Seconds, Field(ge=0, le=LONGEST_WAIT)] = 0.0


class FactView(Model):
    """A fact for this consumer. `body` is the same every time; `ack` is the handle to answer with."""

    ack: str
    attempt: int
    max_attempts: int
    body: dict[str, Any]


class Received(Model):
    """The facts of a poll, in order for each instance."""

    events: list[FactView]


class NextEvent(Wish):
    """The next event of the same instance, decided in the same commit."""

    event: EventRef
    payload: Any = None


class Acknowledge(OfEnvironment):
    """The answer to a fact. `message`, `verdict` and `then` go with an end, `delay` or `at` with a retry."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "environment": "prod",
                    "ack": "AaMbTHMgcNGkcj7qNVqVjgAGUlDTfXzAAaMbTHMhcNGnWN6DyeE2yYh0B7I",
                    "outcome": "processed",
                }
            ]
        }
    )

    ack: Ack
    outcome: Literal["delivered", "processed", "failed", "retry"]
    message: Words | None = None
    verdict: Literal["success", "failure"] | None = None
    then: NextEvent | None = None
    delay: Annotated[Seconds, Field(ge=0, le=LONGEST_DELAY)] | None = None
    at: Moment | None = None


class Acknowledged(Model):
    """The answer to the next event, if the acknowledgement brought one and it was the first."""

    answer: TriggerView | None


class ReplayFacts(OfEnvironment):
    """Give a consumer its facts again from a moment on. A dry run only checks."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"environment": "prod", "since": "2026-05-01T09:30:00Z"}]}
    )

    since: Moment
    dry_run: StrictBool = False


class ReplayView(Model):
    """A replay that has begun, or with `dry_run` could begin."""

    consumer: str
    since: Moment
    dry_run: bool


class DeliveryView(Model):
    """One fact for one consumer. `ack` is its handle."""

    ack: str
    instance_id: UUID
    environment: str
    consumer: str
    consumer_id: UUID
    definition: str
    external_ref: str
    kind: str
    state: str
    event: str | None
    hook: str | None
    status: str
    attempts: int
    max_attempts: int
    next_due_at: Moment | None
    delivered_at: Moment | None
    closed_at: Moment | None
    verdict: str | None
    message: str | None
    created_at: Moment
