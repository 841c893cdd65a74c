"""Findings of a patch: each with its place in the patch, a code, a sentence and a remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from holdfast.errors import DefinitionError

Severity = Literal["error", "warning"]
Path = tuple[str | int, ...]

MOST_FINDINGS: Final = 1000
MOST_GUESSES: Final = 100

REMEDIES: Final[dict[str, str]] = {
    "SLOT_SPLIT_OPEN": "Lead every branch to a join, and the join to the port.",
    "GATE_UNDERAPPROVED": "Put more approvals on that way; of branches that wait for any, only one is sure.",
    "PATCH_ACTION_UNKNOWN": "Name an action of the contract.",
    "PATCH_BASE_UNKNOWN": "Write the version of the contract that the patch is made for.",
    "PATCH_CONTRACT_FOREIGN": "Name the contract that the patch is made for.",
    "PATCH_CYCLE": "Remove an edge of the cycle; what shall be done again begins with a lap through the envelope.",
    "PATCH_DUPLICATE_EDGE": "Keep one of the two.",
    "PATCH_DUPLICATE_NODE": "Give each node of a slot a name of its own.",
    "PATCH_EDGE_MISSING": "Lead an edge from it to another step or to a port.",
    "PATCH_EVENT_UNEXPECTED": "`holdfast docs envelopes` says on which events each kind is left.",
    "PATCH_EXPRESSION_INVALID": "Read fields as entity.<field>, and actor, org, context and now.",
    "PATCH_FIELD_MISPLACED": "`holdfast docs envelopes` says which fields each kind takes; remove it here.",
    "PATCH_FIELD_MISSING": "`holdfast docs envelopes` says which fields each kind needs.",
    "PATCH_FIELD_UNKNOWN": "Name a field of the contract that the action may change.",
    "PATCH_KIND_REFUSED": "`holdfast docs envelopes` lists the kinds for slots.",
    "PATCH_NAMESPACE": "Write the name alone; the compiler puts it into the namespace of its slot.",
    "PATCH_NAME_INVALID": "Begin with a letter; go on with letters, digits, _ and -; 60 characters at the most.",
    "PATCH_POLICY_EMPTY": "Give it a capability or a condition.",
    "PATCH_POLICY_TAKEN": "Give it another name: it is added to the policies of the contract, never put instead.",
    "PATCH_POLICY_TARGET": "Name verbs and actions of the contract.",
    "PATCH_RUN_AS_LOOSER": "Keep to the account that the contract names, or let it run as the actor.",
    "PATCH_TABLE_MISFIT": "Use a table for documents of this type, or correct the columns of the table.",
    "PATCH_TABLE_UNKNOWN": "Publish the decision table first, or correct its name or version.",
    "PATCH_TARGET_UNKNOWN": "Name a node of this slot, or one of the ports in, out and rejected.",
    "PATCH_TIMEOUT_UNUSED": "Set due or deadline, or remove the edge.",
    "PATCH_TOO_LARGE": "Move steps into sub-flows.",
    "PATCH_UNREACHABLE": "Lead an edge to it, or remove it.",
    "PATCH_WITHOUT_PORT": "Lead every path to out or rejected.",
    "SLOT_EDGE_FOREIGN": "Keep to the nodes of this slot and its ports.",
    "SLOT_EDGE_SYSTEM": "Lead the edge to a port: in, out or rejected.",
    "SLOT_MODE_WRONG": "Correct the mode, or the edges at the port.",
    "SLOT_PORT_MISUSED": "Lead edges from in, and to out or rejected.",
    "SLOT_UNKNOWN": "Name a slot of the contract.",
    "SLOT_WINDOW_LOOSER": "Use the same window or a stricter one: editable, then amend_only, then locked.",
    "SLOT_WITHOUT_REJECTED": "Lead the edge elsewhere: behind this slot no gate takes what was rejected.",
}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    place: str  # "slots.review.nodes.finance.due"
    path: Path = ()  # the same with indexes of lists, for those who know lines
    column: int | None = None  # within an expression
    severity: Severity = "error"
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.place}: {self.code} {self.message}{hint}"


class Place(msgspec.Struct, frozen=True):
    """A place in a patch: as it is shown, and as a path of keys and indexes."""

    shown: str
    path: Path

    def at(self, key: str) -> Place:
        return Place(f"{self.shown}.{key}" if self.shown else key, (*self.path, key))

    def item(self, key: str, index: int, name: str | None = None) -> Place:
        """Show an item of a list by its name, where it has one."""
        shown = f"{key}.{name}" if name is not None else f"{key}[{index}]"
        return Place(f"{self.shown}.{shown}" if self.shown else shown, (*self.path, key, index))


ROOT: Final = Place("", ())


class Findings:
    """The findings of one patch: all errors are counted, at most MOST_FINDINGS kept."""

    def __init__(self) -> None:
        self.errors = 0
        self.found: list[Finding] = []

    def add(
        self,
        code: str,
        place: Place,
        message: str,
        *,
        hint: str = "",
        column: int | None = None,
        severity: Severity = "error",
    ) -> None:
        self.errors += severity == "error"
        if len(self.found) < MOST_FINDINGS:
            self.found.append(
                Finding(
                    code=code,
                    message=message,
                    place=(place.shown or "patch") + ("" if column is None else f"@{column}"),
                    path=place.path,
                    column=column,
                    severity=severity,
                    hint=hint or REMEDIES.get(code, ""),
                )
            )

    def nearest(self, word: str, known: Iterable[str]) -> str:
        """Guess the known word that was meant, or none; after MOST_GUESSES findings guessing would take too long."""
        if len(self.found) > MOST_GUESSES:
            return ""
        similar = difflib.get_close_matches(word[:80], list(known)[:MOST_GUESSES], n=1)
        return f"Did you mean {similar[0]}?" if similar else ""

    def in_order(self) -> tuple[Finding, ...]:
        unique = {(each.place, each.code, each.message): each for each in self.found}
        return tuple(unique[key] for key in sorted(unique))


def require_sound(findings: tuple[Finding, ...], noun: str) -> None:
    """Raise all findings as one error if any of them is more than a warning."""
    errors = [found for found in findings if found.severity == "error"]
    if not errors:
        return
    first = errors[0]
    more = f" ({len(errors)} errors in all)" if len(errors) > 1 else ""
    raise DefinitionError(
        f"{noun} cannot be compiled: {first.place}: {first.message}{more}",
        code=first.code,
        hint=first.hint,
        diagnostics=findings,
        place=first.place,
    )
