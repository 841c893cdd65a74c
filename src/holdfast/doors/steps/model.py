"""The model of workflows of steps: plain frozen values. Durations are seconds, expressions are text."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.doors.yaml.problems import Problem, require_sound
from holdfast.doors.yaml.tree import Mark, Path, nearest_mark

ENGINE_EVENTS: Final = ("completed", "error", "timeout")
PEOPLE: Final = frozenset({"action", "approval"})
REFUSALS: Final = frozenset({"rejected", "reject"})


class Assignee(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first assignee of a task: one of the three fields is set."""

    user: str | None = None
    role: str | None = None
    expression: str | None = None


class Retry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    calls: int = 1  # all of them, the first included
    delay: float = 0.0
    backoff: str = "fixed"
    max_delay: float = 3600.0
    jitter: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    type: str  # action | approval | system | wait | notification | terminal
    name: str | None = None
    description: str | None = None
    form: dict[str, Any] | None = None
    capabilities: tuple[str, ...] = ()
    assignee: Assignee | None = None
    self_approval: bool = False
    operation: str | None = None
    call_on: tuple[str, ...] = ()  # of a person's step: the answers after which the call is made
    input: dict[str, str] | None = None
    output: dict[str, str] | None = None
    retry: Retry | None = None
    call_timeout: float | None = None
    timeout: float | None = None
    on_timeout: str | None = None
    duration: float | None = None
    until: str | None = None
    event: str | None = None
    key: str | None = None
    metadata: dict[str, Any] = {}
    index: int = 0  # its position in the list it was written in

    def calls_after(self, event: str) -> bool:
        """Check whether the step's operation is called after this answer of a person."""
        if self.operation is None or event in ("error", "timeout"):
            return False
        return event in self.call_on if self.call_on else event not in REFUSALS


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: str
    target: str
    event: str = "completed"
    condition: str | None = None
    guard: str | None = None
    index: int = 0


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `workflows:`. `text` is YAML that reads as this workflow alone, or its whole file."""

    id: str
    steps: tuple[Step, ...]
    transitions: tuple[Transition, ...] = ()
    name: str | None = None
    description: str | None = None
    version: int = 1
    timeout: float | None = None
    on_timeout: str | None = None
    capabilities: tuple[str, ...] = ()
    initial_step: str | None = None
    input_schema: dict[str, Any] | None = None
    metadata: dict[str, Any] = {}
    file: str = ""
    text: str = ""
    marks: dict[Path, Mark] = {}

    @property
    def entry(self) -> str:
        """The step at which instances begin: `initial_step`, else the first."""
        return self.initial_step or self.steps[0].id

    @property
    def source(self) -> dict[str, Any]:
        """The source kept beside the compiled graph, so that the definition can be printed as it was written."""
        return {"kind": "steps", "name": self.id, "version": self.version, "yaml": self.text}

    def mark(self, *path: str | int) -> Mark:
        """Find the place of a value in the file, or of the nearest value around it."""
        return nearest_mark(self.marks, path)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A file of workflows: the sound ones, and every problem of the file."""

    file: str
    workflows: tuple[Workflow, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_sound(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)

    def require_sound(self) -> tuple[Workflow, ...]:
        """Return the workflows, or raise a DefinitionError that lists all problems in its `diagnostics`."""
        require_sound(self.problems)
        return self.workflows
