"""The result of a simulation: the path with its reasons, the windows over time, the questions, and each answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.documents.stance import Stance
from holdfast.runtime.envelopes.script import Input


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An expression that was evaluated, with the values that it read."""

    expression: str
    values: dict[str, Any]
    result: Any
    edges: tuple[str, ...] = ()  # that it let the token take


class Visit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="visit", tag_field="step"):
    """A visit of a node."""

    node: str
    kind: str
    entered: datetime
    left: datetime | None = None
    status: str = ""
    edges: tuple[str, ...] = ()  # by which it was left
    why: tuple[Reason, ...] = ()
    output: Any = None
    error: str | None = None


class Interrupt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="interrupt", tag_field="step"):
    """A verb or an amendment that ended everything under way."""

    at: datetime
    target: str
    verb: str | None = None  # None: an amendment


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval that was asked for."""

    node: str
    asked: datetime
    version: int  # of the document
    roles: tuple[str, ...] = ()
    assignee: str | None = None
    due: datetime | None = None
    closed: datetime | None = None
    decision: str | None = None  # None: not decided yet, or not needed any more
    by: str | None = None


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The stance of the instance from a moment on; None: it is over."""

    since: datetime
    stance: Stance | None


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to an input of the script: it was applied, or refused with a code and a sentence."""

    input: Input
    at: datetime
    applied: bool = True
    code: str | None = None
    message: str | None = None


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The way of one simulated document."""

    path: tuple[Visit | Interrupt, ...]
    windows: tuple[Outlook, ...]
    questions: tuple[Question, ...]
    answers: tuple[Answer, ...]
    document: dict[str, Any]  # at the end
    version: int
    state: str  # of the document, at the end
    status: str  # of the instance
    waits: tuple[str, ...]  # nodes at which tokens are
    error: str | None = None
    data: dict[str, Any] = {}  # the context

    @property
    def visits(self) -> tuple[Visit, ...]:
        return tuple(each for each in self.path if isinstance(each, Visit))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes in the order in which they were entered."""
        return tuple(visit.node for visit in self.visits)

    @property
    def states(self) -> tuple[str, ...]:
        """The states of the document, one after another."""
        return tuple(node.removeprefix("sys:state:") for node in self.nodes if node.startswith("sys:state:"))

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(node.removeprefix("sys:gate:") for node in self.nodes if node.startswith("sys:gate:"))

    @property
    def refused(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if not answer.applied)

    def lines(self) -> Iterator[str]:
        """Tell the way line by line, for people."""
        begun = self.path[0].entered if self.path and isinstance(self.path[0], Visit) else None
        for step in self.path:
            if isinstance(step, Interrupt):
                yield f"  interrupt: {step.verb or 'amendment'} leads to {step.target}"
                continue
            after = "" if begun is None or step.entered == begun else f" after {_span(step.entered, begun)}"
            yield f"{step.node} [{step.kind}] {step.status}{after}" + (f": {step.error}" if step.error else "")
            for reason in step.why:
                values = ", ".join(f"{name} = {value!r}" for name, value in reason.values.items())
                taken = f" → {', '.join(reason.edges)}" if reason.edges else ""
                yield f"    {reason.expression} is {reason.result!r} ({values}){taken}"
        for answer in self.refused:
            yield f"refused: {answer.code} {answer.message}"
        yield f"{self.status} in the state {self.state!r}"


def _span(later: datetime, earlier: datetime) -> str:
    return str(later - earlier)
