"""Problems of a blueprint or a policy: each with its place in the document, a code, a sentence and a remedy."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from holdfast.doors.machine.places import Path, offsets, spelled
from holdfast.errors import DefinitionError

Severity = Literal["error", "warning"]

MOST_PROBLEMS: Final = 1000
MOST_GUESSES: Final = 100

REMEDIES: Final[dict[str, str]] = {
    "CIRCULAR_ONLY": "Mark a state with is_final if instances should ever end.",
    "MACHINE_COMPLETE_UNTAKEN": "Name an event that leaves this state.",
    "MACHINE_DUPLICATE_EVENT_CODE": "Give each event a code of its own.",
    "MACHINE_DUPLICATE_EVENT_NAME": "Give each event a name of its own.",
    "MACHINE_DUPLICATE_PARAM": "Give each parameter a code of its own.",
    "MACHINE_DUPLICATE_STATE": "Give each state a name of its own.",
    "MACHINE_DUPLICATE_TIMEOUT": "Keep one timeout per state.",
    "MACHINE_DUPLICATE_TRANSITION": "Remove one of the two, or give them different conditions or guards.",
    "MACHINE_DURATION_INVALID": "Write ISO 8601 above zero and up to 100 years, such as P2D, PT30M or P1DT12H.",
    "MACHINE_EFFECT_COMPLETES": "Remove `complete`, or make the hook a gate: nothing waits for an effect.",
    "MACHINE_EVENT_RESERVED": "Choose another name: completed, error and timeout are the engine's own.",
    "MACHINE_EVENT_UNKNOWN": "Name an event of the blueprint, by name or code.",
    "MACHINE_EXPRESSION_INVALID": "`holdfast docs expressions` describes the language and its limits.",
    "MACHINE_FAILURE_MISSING": "Add `failure`, or the consumers cannot report that the work failed.",
    "MACHINE_FINAL_LEFT": "Remove the transition, or the mark is_final.",
    "MACHINE_GATES_DIFFER": "Give all gates of one order the same `complete`, or different orders.",
    "MACHINE_GATE_UNORDERED": "Add an order, or leave the type out: without an order nothing waits for it.",
    "MACHINE_HOOK_AMBIGUOUS": "Write exactly one of event and route.",
    "MACHINE_INITIAL_AMBIGUOUS": "Mark exactly one state with is_initial.",
    "MACHINE_INITIAL_FINAL": "Begin in a state that is not final.",
    "MACHINE_INITIAL_MISSING": "Mark exactly one state with is_initial.",
    "MACHINE_KEY_MISSING": "`holdfast docs machines` shows what is needed.",
    "MACHINE_KEY_UNKNOWN": "`holdfast docs machines` lists the keys.",
    "MACHINE_NAME_INVALID": "`holdfast docs machines` shows which names are possible.",
    "MACHINE_ORDER_INVALID": "Write a whole number from 1 to 2147483646.",
    "MACHINE_PARAM_UNKNOWN": "Name a code of the policy's `params`.",
    "MACHINE_POLICY_FOREIGN": "Name this machine in `for.definition`, or take the policy of this machine.",
    "MACHINE_POLICY_STATE_UNKNOWN": "Name a state of the blueprint; until then this has no effect.",
    "MACHINE_POLICY_VERSION": "Check the policy against this blueprint, then correct `for.version` or leave it out.",
    "MACHINE_RULE_UNREACHED": "Correct `state` or `via`, or remove the rule.",
    "MACHINE_STATE_STUCK": "Add a transition from it, or mark it with is_final.",
    "MACHINE_STATE_UNKNOWN": "Name a state of this blueprint.",
    "MACHINE_STATE_UNREACHABLE": "Lead a transition to it, or remove it.",
    "MACHINE_TIMEOUT_AMBIGUOUS": "Write exactly one of the two.",
    "MACHINE_TIMEOUT_UNTAKEN": "Add a transition from this state on that event, or name another one.",
    "MACHINE_TIMEOUT_UNUSED": "Remove it: an instance does not stay in a final state.",
    "MACHINE_TOO_LARGE": "Split it, or pass references to large parameters.",
    "MACHINE_TYPE_WRONG": "`holdfast docs machines` shows what each key takes.",
    "MACHINE_VALUE_INVALID": "`holdfast docs machines` shows what each key takes.",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    place: str  # "states[2].name"; "$" for the whole document
    line: int | None = None  # None: the document came as data, not as text
    column: int | None = None
    code: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        where = f"{self.line}:{self.column}" if self.line else self.place
        return f"{self.file}:{where}: {self.code} {self.message}{hint}"


class _Found(msgspec.Struct, frozen=True):
    path: Path
    code: str
    message: str
    hint: str
    severity: Severity


class Findings:
    """The problems of one document, gathered while it is read: all errors are counted, at most MOST_PROBLEMS kept."""

    def __init__(self, file: str, root: Path = ()) -> None:
        self.file = file
        self.root = root  # of the document within the file
        self.errors = 0
        self.found: list[_Found] = []

    def add(self, code: str, path: Path, message: str, *, hint: str = "", severity: Severity = "error") -> None:
        self.errors += severity == "error"
        if len(self.found) < MOST_PROBLEMS:
            self.found.append(_Found((*self.root, *path), code, message, hint or REMEDIES.get(code, ""), severity))

    def inside(self, content: Any) -> Any:
        """Take the document out of the file's content."""
        for key in self.root:
            content = content[key]
        return content

    def warn(self, code: str, path: Path, message: str) -> None:
        self.add(code, path, message, severity="warning")

    def nearest(self, word: str, known: Iterable[str]) -> str:
        """Guess the known word that was meant, or none; after MOST_GUESSES problems guessing would take too long."""
        if len(self.found) > MOST_GUESSES:
            return ""
        similar = difflib.get_close_matches(word[:80], known, n=1)
        return f"Did you mean {similar[0]}?" if similar else ""

    def problems(self, document: Any, text: str | None) -> tuple[Problem, ...]:
        """List the problems in the order of the document, with lines where it was text."""
        if not self.found:
            return ()
        shown = json.dumps(document) if text is None else text
        at = offsets(shown)
        ordered = sorted(self.found, key=lambda each: (_offset(at, each.path), each.code))
        return tuple(self._problem(each, shown if text is not None else None, at) for each in ordered)

    def _problem(self, found: _Found, text: str | None, at: dict[Path, int]) -> Problem:
        line, column = (None, None) if text is None else _line(text, _offset(at, found.path))
        return Problem(
            file=self.file,
            place=spelled(found.path),
            line=line,
            column=column,
            code=found.code,
            message=found.message,
            hint=found.hint,
            severity=found.severity,
        )


def _offset(at: dict[Path, int], path: Path) -> int:
    while path and path not in at:
        path = path[:-1]
    return at.get(path, 0)


def _line(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def refuse(problems: tuple[Problem, ...]) -> None:
    """Raise all problems as one error if any of them is more than a warning."""
    errors = [problem for problem in problems if problem.severity == "error"]
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors)} problems in all)" if len(errors) > 1 else ""
    raise DefinitionError(
        f"{first.file} at {first.place}: {first.message}{more}",
        code=first.code,
        hint=first.hint,
        diagnostics=problems,
        place=first.place,
    )
