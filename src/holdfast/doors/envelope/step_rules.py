"""Rules of the single steps of a patch: names, kinds, fields, windows, and what they name of the contract."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from holdfast.doors.envelope.findings import Findings, Place
from holdfast.doors.envelope.model import Approvers, ContractDefinition, PatchNode, RunAs, SlotPatch
from holdfast.doors.envelope.patch_kinds import FIELDS, TAKES, Takes
from holdfast.doors.envelope.tables import Tables
from holdfast.doors.literals import moment
from holdfast.errors import ExpressionError
from holdfast.graph.envelope import PORTS
from holdfast.graph.expressions import compile_expression
from holdfast.graph.kinds import KINDS
from holdfast.graph.windows import strictest

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")
_UNSET: Final = (None, False)


class Scope:
    """The surroundings of a patch that its steps are checked against."""

    def __init__(
        self, contract: ContractDefinition, tables: Tables, findings: Findings, variables: dict[str, str]
    ) -> None:
        self.contract = contract
        self.tables = tables
        self.findings = findings
        self.variables = variables
        self.types = {field.name: field.type for field in contract.fields}
        self.fields = frozenset(self.types)
        self.actions = {action.name: action for action in contract.actions}
        self.sound: set[tuple[str, str]] = set()  # expressions that were compiled before, with the type demanded


def check_name(name: str, findings: Findings, place: Place) -> None:
    if ":" in name:
        findings.add("PATCH_NAMESPACE", place, f"{name[:80]!r} names a namespace.")
    elif not NAME.fullmatch(name) or name in PORTS:
        why = "is the name of a port" if name in PORTS else "is no name"
        findings.add("PATCH_NAME_INVALID", place, f"{name[:80]!r} {why}.")


def check_expression(text: str, scope: Scope, place: Place, *, result: Literal["boolean", "any"]) -> None:
    if (text, result) in scope.sound:
        return
    try:
        compile_expression(text, scope.variables, result=result)
    except ExpressionError as error:
        message = f"[{error.code}] {error.message}"
        scope.findings.add("PATCH_EXPRESSION_INVALID", place, message, hint=error.hint, column=error.position)
    else:
        scope.sound.add((text, result))


def check_steps(steps: SlotPatch, window: str, scope: Scope, place: Place) -> None:
    seen: set[str] = set()
    for index, node in enumerate(steps.nodes):
        at = place.item("nodes", index, node.id[:80])
        check_name(node.id, scope.findings, at)
        if node.id in seen:
            scope.findings.add("PATCH_DUPLICATE_NODE", at, f"Another step of the slot is called {node.id[:80]!r}.")
        seen.add(node.id)
        if node.window is not None and strictest(node.window, window) != node.window:
            message = f"The window {node.window} is looser than {window}, that of the slot."
            scope.findings.add("SLOT_WINDOW_LOOSER", at.at("window"), message)
        _Step(node, scope, at).check()


class _Step:
    """The rules of one step."""

    def __init__(self, node: PatchNode, scope: Scope, place: Place) -> None:
        self.node = node
        self.scope = scope
        self.findings = scope.findings
        self.place = place

    def check(self) -> None:
        row, takes = KINDS.get(self.node.kind), TAKES.get(self.node.kind)
        if row is None or takes is None or not row.in_slots:
            message = f"Steps of kind {self.node.kind[:80]!r} are not for slots."
            hint = self.findings.nearest(self.node.kind, TAKES)
            self.findings.add("PATCH_KIND_REFUSED", self.place.at("kind"), message, hint=hint)
            return
        self._presence(takes)
        self._expressions()
        self._action()
        self._table()
        if self.node.approvers is not None:
            self._approvers(self.node.approvers)

    def _presence(self, takes: Takes) -> None:
        kind = self.node.kind
        given = {field for field in FIELDS if self._is_given(field)}
        for field in sorted(given - takes.fields):
            message = f"A step of kind {kind} takes no {field}."
            self.findings.add("PATCH_FIELD_MISPLACED", self.place.at(field), message)
        for field in takes.needs:
            if field not in given or not getattr(self.node, field):
                self.findings.add("PATCH_FIELD_MISSING", self.place.at(field), f"A step of kind {kind} needs {field}.")
        either = ", ".join(takes.needs_one or takes.needs_any)
        chosen = given.intersection(takes.needs_one)
        if takes.needs_one and len(chosen) != 1:
            code = "PATCH_FIELD_MISPLACED" if chosen else "PATCH_FIELD_MISSING"
            self.findings.add(code, self.place, f"A step of kind {kind} needs exactly one of {either}.")
        if takes.needs_any and not given.intersection(takes.needs_any):
            self.findings.add("PATCH_FIELD_MISSING", self.place, f"A step of kind {kind} needs one of {either}.")

    def _is_given(self, field: str) -> bool:
        return not any(getattr(self.node, field) is unset for unset in _UNSET)

    def _expressions(self) -> None:
        node = self.node
        for field, mapping in (("sets", node.sets), ("payload", node.payload)):
            for name, text in (mapping or {}).items():
                check_expression(text, self.scope, self.place.at(field).at(name[:80]), result="any")
        until = None if node.until is None else moment(node.until)
        for field, text in (("until", until), ("key", node.key), ("to", node.to)):
            if text is not None:
                check_expression(text, self.scope, self.place.at(field), result="any")
        if node.when is not None:
            check_expression(node.when, self.scope, self.place.at("when"), result="boolean")

    def _action(self) -> None:
        name = self.node.action
        if name is None:
            return
        action = self.scope.actions.get(name)
        if action is None:
            hint = self.findings.nearest(name, self.scope.actions)
            message = f"The contract has no action {name[:80]!r}."
            self.findings.add("PATCH_ACTION_UNKNOWN", self.place.at("action"), message, hint=hint)
            return
        allowed = frozenset(action.sets) or self.scope.fields
        for field in sorted(set(self.node.payload or {}) - allowed):
            message = f"The action {name!r} does not change a field {field[:80]!r}."
            hint = self.findings.nearest(field, allowed)
            self.findings.add("PATCH_FIELD_UNKNOWN", self.place.at("payload").at(field[:80]), message, hint=hint)
        if not may_run_as(self.node.run_as, action.run_as):
            message = f"The contract lets {name!r} run as {action.run_as}, not as {self.node.run_as}."
            self.findings.add("PATCH_RUN_AS_LOOSER", self.place.at("run_as"), message)

    def _table(self) -> None:
        name, version = self.node.table, self.node.table_version
        if name is None:
            return
        table = self.scope.tables.find(name, version)
        if table is None:
            which = "" if version is None else f" of version {version}"
            message = f"There is no decision table {name[:80]!r}{which}."
            hint = self.findings.nearest(name, self.scope.tables.names)
            self.findings.add("PATCH_TABLE_UNKNOWN", self.place.at("table"), message, hint=hint)
            return
        for column in table.table.get("columns", ()):
            self._column(name, column["field"], column["type"])

    def _column(self, table: str, field: str, type: str) -> None:
        found = self.scope.types.get(field)
        if found != type:
            told = "has no such field" if found is None else f"has a {found}"
            message = f"The table {table!r} reads {field[:80]!r} as {type}; the contract {told}."
            self.findings.add("PATCH_TABLE_MISFIT", self.place.at("table"), message)

    def _approvers(self, approvers: Approvers) -> None:
        given = [field for field, value in msgspec.structs.asdict(approvers).items() if value is not None]
        place = self.place.at("approvers")
        if len(given) != 1 or not getattr(approvers, given[0]):
            code = "PATCH_FIELD_MISPLACED" if len(given) > 1 else "PATCH_FIELD_MISSING"
            self.findings.add(code, place, "Approvers are exactly one of user, role and expression.")
        if approvers.expression:
            check_expression(approvers.expression, self.scope, place.at("expression"), result="any")


def may_run_as(wanted: RunAs | None, contract: RunAs) -> bool:
    """Check if a patch leaves an action to its own account, or takes rights away from it."""
    return wanted in (None, contract, "actor")
