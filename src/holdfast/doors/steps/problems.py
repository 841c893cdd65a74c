"""Problems of a file of steps: each with its place in the file, a code, a sentence and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from holdfast.doors.steps.tree import Mark
from holdfast.errors import DefinitionError

Severity = Literal["error", "warning"]

MOST_PROBLEMS: Final = 1000
MOST_GUESSES: Final = 100

REMEDIES: Final[dict[str, str]] = {
    "YAML_ALIAS": "Define the anchor before its alias, and never inside itself.",
    "YAML_CHARACTER": "Remove it, or write it as an escape in double quotes.",
    "YAML_DUPLICATE_KEY": "Keep one of the two.",
    "YAML_EMPTY": "Begin with `workflows:`.",
    "YAML_KEY_NOT_TEXT": "Put the key in quotes.",
    "YAML_NUMBER": "Write finite numbers of at most 18 digits; put longer ones in quotes.",
    "YAML_SEVERAL_DOCUMENTS": "Write several workflows under one `workflows:`, or one document per file.",
    "YAML_SYNTAX": "Check the indentation and the quotes near this place.",
    "YAML_TAG": "Leave the tag out; text that looks like something else goes in quotes.",
    "YAML_TOO_COMPLEX": "Split the file, and use fewer aliases.",
    "YAML_TOO_DEEP": "Flatten it.",
    "YAML_TOO_LARGE": "Split it into several files.",
    "STEPS_ASSIGNEE_AMBIGUOUS": "Write exactly one of user, role and expression.",
    "STEPS_CYCLE": "Put a step that waits (action, approval or wait) into the cycle.",
    "STEPS_DUPLICATE": "Give each workflow and each step an id of its own.",
    "STEPS_DURATION_INVALID": 'Write "90s", "15m", "72h", "1d12h", or ISO 8601 such as "P3D"; at most 100 years.',
    "STEPS_EVENT_UNEXPECTED": "`holdfast docs steps` says which events each type of step knows.",
    "STEPS_EXPRESSION_INVALID": "`holdfast docs expressions` describes the language and its limits.",
    "STEPS_GUARD_MISPLACED": "Guard the transitions of steps where somebody acts; elsewhere write a condition.",
    "STEPS_KEY_MISPLACED": "`holdfast docs steps` shows what each type of step takes.",
    "STEPS_KEY_MISSING": "`holdfast docs steps` shows what is needed.",
    "STEPS_KEY_UNKNOWN": "`holdfast docs steps` lists the keys.",
    "STEPS_NAME_RESERVED": "Choose another name: this one is the engine's own.",
    "STEPS_NO_DEFAULT": "Add a transition without a condition on that event: it is taken if no other holds.",
    "STEPS_OPERATION_INVALID": "Write KIND:NAME, such as python:charge or openapi:shop.createOrder.",
    "STEPS_SCHEMA_INVALID": "Write a JSON Schema; only references within it are followed.",
    "STEPS_TARGET_UNKNOWN": "Name a step of this workflow.",
    "STEPS_TERMINAL_LEFT": "Remove the transition, or give the step another type.",
    "STEPS_TIMEOUT_AMBIGUOUS": "Keep on_timeout or the transition on timeout, not both.",
    "STEPS_TIMEOUT_UNUSED": "Set a timeout, or remove on_timeout.",
    "STEPS_TIMEOUT_WITHOUT_STEP": "Set on_timeout here or for the workflow; without it the instance fails.",
    "STEPS_TRANSITION_MISSING": "Add a transition from this step on that event.",
    "STEPS_TRANSITION_SHADOWED": "Remove one of the two, or give them conditions or guards.",
    "STEPS_TYPE_WRONG": "`holdfast docs steps` shows what each key takes.",
    "STEPS_UNREACHABLE": "Lead a transition to it, or remove it.",
    "STEPS_VALUE_INVALID": "`holdfast docs steps` shows what each key takes.",
    "STEPS_WAIT_AMBIGUOUS": "Write exactly one of duration, until and event.",
    "STEPS_WITHOUT_TERMINAL": "Lead every path to a step of type terminal.",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int
    column: int
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {self.code} {self.message}{hint}"


class Findings:
    """The problems of one file, gathered while it is read: all errors are counted, at most MOST_PROBLEMS kept."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.errors = 0

    def add(self, code: str, message: str, mark: Mark, *, hint: str = "", severity: Severity = "error") -> None:
        self.errors += severity == "error"
        if len(self.problems) >= MOST_PROBLEMS:
            return
        self.problems.append(
            Problem(
                file=self.file,
                line=mark.line,
                column=mark.column,
                code=code,
                message=message,
                hint=hint or REMEDIES.get(code, ""),
                severity=severity,
            )
        )

    def nearest(self, word: str, known: Iterable[str]) -> str:
        """Guess the known word that was meant, or none; after MOST_GUESSES problems guessing would take too long."""
        if len(self.problems) > MOST_GUESSES:
            return ""
        similar = difflib.get_close_matches(word[:80], known, n=1)
        return f"Did you mean {similar[0]}?" if similar else ""


def in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(set(problems), key=lambda each: (each.file, each.line, each.column, each.code, each.message)))


def require_sound(problems: tuple[Problem, ...]) -> None:
    """Raise all problems as one error if any of them is more than a warning."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors)} problems in all)" if len(errors) > 1 else ""
    raise DefinitionError(
        f"{first.file}:{first.line}:{first.column}: {first.message}{more}",
        code=first.code,
        hint=first.hint,
        diagnostics=problems,
        place=f"{first.line}:{first.column}",
    )
