"""Models of simulated documents: the script that is played, and the way that was taken."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from pydantic import ConfigDict, Field

from holdfast.runtime.envelopes.script import Input
from holdfast.server.models.base import Key, Model, Moment, Name, WholeVersion, Wish
from holdfast.server.models.differences import DraftWord

MOST_INPUTS: Final = 1000
MOST_SECONDS: Final = 100 * 366 * 86400  # that pass at once
Names = Annotated[list[Name], Field(max_length=100)]


class VerbCall(Wish):
    """A person calls a verb. Without `capabilities` they have every one that the graph knows."""

    do: Literal["verb"]
    verb: Name
    by: Name = "ann"
    capabilities: Names | None = None
    payload: dict[str, Any] | None = None


class ApproverDecision(Wish):
    """An approver decides at a node."""

    do: Literal["decide"]
    node: Name
    decision: Name = "approved"
    by: Name = "ben"
    data: dict[str, Any] | None = None


class DocumentEdit(Wish):
    """A person changes fields of the document."""

    do: Literal["edit"]
    fields: dict[str, Any]
    by: Name = "ann"
    capabilities: Names | None = None


class EventArrival(Wish):
    """An event arrives, by name or addressed by key."""

    do: Literal["event"]
    event: Name
    key: Key | None = None
    data: dict[str, Any] | None = None


class TimePassing(Wish):
    """Time passes; timers that fall due are fired at their moment."""

    do: Literal["wait"]
    seconds: Annotated[float, Field(strict=True, ge=0, le=MOST_SECONDS)]


ScriptInput = Annotated[
    VerbCall | ApproverDecision | DocumentEdit | EventArrival | TimePassing, Field(discriminator="do")
]


class SimulateDocument(Wish):
    """A document, and what happens to it in order. `settings` are those of the organisation, `now` is the beginning.

    `outputs` has the answers of actions, effects and sub-flows by their node, `failing` the codes of those that fail.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"examples": [{"document": {"total": 500}, "script": [{"do": "verb", "verb": "submit"}]}]}
    )
    document: dict[str, Any]
    script: Annotated[list[ScriptInput], Field(max_length=MOST_INPUTS)] = Field(default_factory=list[ScriptInput])
    version: WholeVersion | DraftWord | None = Field(
        default=None, description="Of the patch, or its draft; else the graph in force."
    )
    now: Moment | None = None
    settings: dict[str, Any] | None = None
    outputs: Annotated[dict[Name, dict[str, Any]], Field(max_length=MOST_INPUTS)] | None = None
    failing: Annotated[dict[Name, Name], Field(max_length=MOST_INPUTS)] | None = None

    @property
    def inputs(self) -> list[Input]:
        return [msgspec.convert(one.model_dump(exclude_unset=True), Input) for one in self.script]


class ReasonView(Model):
    """An expression that was evaluated, with the values that it read."""

    expression: str
    values: dict[str, Any]
    result: Any
    edges: list[str] = Field(default_factory=list[str])


class VisitView(Model):
    """A visit of a node, and why it was left the way it was."""

    step: Literal["visit"]
    node: str
    kind: str
    entered: Moment
    left: Moment | None = None
    status: str = ""
    edges: list[str] = Field(default_factory=list[str])
    why: list[ReasonView] = Field(default_factory=list[ReasonView])
    output: Any = None
    error: str | None = None


class InterruptView(Model):
    """A verb or an amendment that ended everything under way."""

    step: Literal["interrupt"]
    at: Moment
    target: str
    verb: str | None = None


class QuestionView(Model):
    """An approval that was asked for, at a version of the document."""

    node: str
    asked: Moment
    version: int
    roles: list[str] = Field(default_factory=list[str])
    assignee: str | None = None
    due: Moment | None = None
    closed: Moment | None = None
    decision: str | None = None
    by: str | None = None


class StanceView(Model):
    """The edit window and the verbs that were offered."""

    window: Literal["editable", "amend_only", "locked"]
    verbs: list[str] = Field(default_factory=list[str])
    stable: bool = False
    asks: bool = False
    listens: list[str] = Field(default_factory=list[str])


class OutlookView(Model):
    """The stance from a moment on; null: the instance was over."""

    since: Moment
    stance: StanceView | None


class AnswerView(Model):
    """The answer to an input of the script: it was applied, or refused with a code."""

    input: ScriptInput
    at: Moment
    applied: bool = True
    code: str | None = None
    message: str | None = None


class DocumentSimulationView(Model):
    """The way of a document that exists only in this answer."""

    path: list[Annotated[VisitView | InterruptView, Field(discriminator="step")]]
    windows: list[OutlookView]
    questions: list[QuestionView]
    answers: list[AnswerView]
    document: dict[str, Any]
    version: int
    state: str
    status: str
    waits: list[str]
    error: str | None
    data: dict[str, Any]
