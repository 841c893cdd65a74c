"""Problems of a file: each with its place in the file, a code, a sentence and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from holdfast.doors.yaml.tree import Mark
from holdfast.errors import DefinitionError

Severity = Literal["error", "warning"]

MOST_PROBLEMS: Final = 1000
MOST_GUESSES: Final = 100

REMEDIES: Final[dict[str, str]] = {
    "YAML_ALIAS": "Define the anchor before its alias, and never inside itself.",
    "YAML_CHARACTER": "Remove it, or write it as an escape in double quotes.",
    "YAML_DUPLICATE_KEY": "Keep one of the two.",
    "YAML_EMPTY": "Begin with a key such as `workflows:`.",
    "YAML_KEY_NOT_TEXT": "Put the key in quotes.",
    "YAML_NUMBER": "Write finite numbers of at most 18 digits; put longer ones in quotes.",
    "YAML_SEVERAL_DOCUMENTS": "Write one document per file.",
    "YAML_SYNTAX": "Check the indentation and the quotes near this place.",
    "YAML_TAG": "Leave the tag out; text that looks like something else goes in quotes.",
    "YAML_TOO_COMPLEX": "Split the file, and use fewer aliases.",
    "YAML_TOO_DEEP": "Flatten it.",
    "YAML_TOO_LARGE": "Split it into several files.",
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

    def __init__(self, file: str, remedies: Mapping[str, str] = REMEDIES) -> None:
        self.file = file
        self.remedies = remedies
        self.problems: list[Problem] = []
        self.errors = 0
        self.count = 0

    def add(self, code: str, message: str, mark: Mark, *, hint: str = "", severity: Severity = "error") -> None:
        self.errors += severity == "error"
        self.count += 1
        if self.count <= MOST_PROBLEMS:
            self.keep(code, message, mark, hint or self.remedies.get(code, ""), severity)

    def keep(self, code: str, message: str, mark: Mark, hint: str, severity: Severity) -> None:
        self.problems.append(
            Problem(
                file=self.file,
                line=mark.line,
                column=mark.column,
                code=code,
                message=message,
                hint=hint,
                severity=severity,
            )
        )

    def nearest(self, word: str, known: Iterable[str]) -> str:
        """Guess the known word that was meant, or none; after MOST_GUESSES problems guessing would take too long."""
        if self.count > MOST_GUESSES:
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
