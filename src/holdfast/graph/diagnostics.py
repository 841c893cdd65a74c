"""Diagnostics: the findings of a check, each with a stable code, a sentence, the place and a hint.

`RULES` is the whole list of codes; a code that is not in it cannot be reported, and docs/graph.md shows each one.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Severity = Literal["error", "warning"]


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    place: str  # "nodes.reserve.retry", "edges.e1.when@12", "policy.on_error"
    severity: Severity = "error"
    hint: str = ""


class Rule(msgspec.Struct, frozen=True):
    hint: str
    severity: Severity = "error"


RULES: Final[dict[str, Rule]] = {
    "GRAPH_INVALID": Rule("Compare the field with the reference by `holdfast docs graph`."),
    "GRAPH_FORMAT_UNSUPPORTED": Rule("Upgrade Holdfast, or write the definition in the supported format."),
    "UNKNOWN_GRAPH_KIND": Rule("Use one of: saga, steps, machine, envelope, org_patch, effective."),
    "BAD_VERSION": Rule("Versions are whole numbers from 1."),
    "BAD_NAME": Rule("Use 1 to 200 bytes of visible text; ids and the graph's name may not contain '@'."),
    "BAD_VALUE": Rule("Keep to storable JSON; write integers above 2^53 and money as strings."),
    "BAD_VARIABLE": Rule("Declare a dotted path with one of: number, string, boolean, list, object, time, any."),
    "BAD_POLICY": Rule("The values each policy field takes are listed by `holdfast docs graph`."),
    "UNKNOWN_ON_TIMEOUT": Rule("Name a node of this graph, or leave on_timeout out."),
    "DUPLICATE_NODE": Rule("Give each node an id of its own."),
    "DUPLICATE_EDGE": Rule("Give each edge an id of its own."),
    "UNKNOWN_KIND": Rule("`holdfast docs graph` lists the node kinds."),
    "UNKNOWN_ENTRY": Rule("Set entry to the id of the node where instances begin."),
    "UNKNOWN_SOURCE": Rule("Correct the id, or add the node."),
    "UNKNOWN_TARGET": Rule("Correct the id, or add the node."),
    "UNREACHABLE_NODE": Rule("Lead an edge to it, or remove it."),
    "NO_END": Rule("Lead every path to a node of kind end or terminal."),
    "NO_WAY_ON": Rule("Add an edge that is taken on completed."),
    "AUTOMATIC_CYCLE": Rule("Put a node that waits (work, rest, or a timer with a delay) into the cycle."),
    "END_WITH_EDGES": Rule("Remove the edge, or use another kind of node."),
    "END_IN_SCOPE": Rule("Join the branches first, or use a terminal, which ends all of them."),
    "SPLIT_TOO_NARROW": Rule("Give the split two or more edges on completed, or use a node that does not split."),
    "JOIN_WITHOUT_SPLIT": Rule("Put a split before the join, or remove the join."),
    "JOIN_MISMATCH": Rule("Give each split one join of its own."),
    "JUMP_INTO_SCOPE": Rule("Enter the branches only through their split."),
    "NO_DEFAULT_EDGE": Rule("Add an edge without `when`: it is taken if no other holds."),
    "BAD_EXPRESSION": Rule("`holdfast docs expressions` describes the language and its limits."),
    "BAD_FORM": Rule("Describe a decision's data, such as {'type': 'object', 'properties': {…}}; nothing is fetched."),
    "MISSING_HANDLER": Rule("Name the handler, the operation or the effect in `handler`."),
    "MISSING_CHILD": Rule("Name the flow to start in `child`."),
    "MISSING_MODE": Rule("Set mode to all or any."),
    "BAD_MODE": Rule("Set mode to all or any."),
    "BAD_RETRY": Rule("calls from 1, delays from 0, backoff fixed, linear or exponential, jitter from 0 to 1."),
    "BAD_DURATION": Rule("Durations are seconds: above 0 (delays: from 0) and at most 100 years."),
    "BAD_PRIORITY": Rule("Use a whole number from 0 to 100; higher is sooner."),
    "BAD_EDIT_WINDOW": Rule("Use editable, amend_only or locked."),
    "TIMER_WITHOUT_TIME": Rule("Set delay, after, until or cron."),
    "TIMER_AMBIGUOUS": Rule("Keep one of delay, after, until and cron."),
    "BAD_CRON": Rule("Use five fields (minute hour day month weekday), or six with seconds first."),
    "BAD_TIMEZONE": Rule("Use a name of the IANA database, such as Europe/Berlin; it belongs to cron or until."),
    "FIELD_MISPLACED": Rule("`holdfast docs graph` says for which nodes each field is; remove it here."),
    "REST_WITHOUT_EVENT": Rule("Add an edge on the event it waits for, a wait, or a child."),
    "UNKNOWN_UNDO": Rule("Correct the id, or add the compensation."),
    "UNDO_MISMATCH": Rule("Give the node that undoes the kind compensation."),
    "UNDO_MISPLACED": Rule("Only work, call and rest nodes that are no compensations themselves have an undo."),
    "COMPENSATION_UNUSED": Rule("Name it as the undo of the node it takes back, or remove it."),
    "COMPENSATION_SHARED": Rule("Give each node a compensation of its own; their handler may be the same."),
    "COMPENSATION_ON_PATH": Rule("Remove the edge: only a rollback reaches a compensation, through `undo`."),
    "SAVE_POINT_IN_SCOPE": Rule("Put the save point before the split or behind its join."),
    "DUPLICATE_REGION": Rule("Give each region an id of its own."),
    "UNKNOWN_REGION_NODE": Rule("Correct the id, or add the node."),
    "UNKNOWN_REGION_VERB": Rule("Offer the verb in `verbs`, or remove its guard and its condition."),
    "REGION_OVERLAP": Rule("Each node lies in one region at the most."),
    "TIMEOUT_EDGE_MISSING": Rule("Add an edge on timeout; without it the deadline is an error.", "warning"),
    "SHARED_KEY_WRITTEN": Rule("Write different keys: of two branches the one that closes last wins.", "warning"),
}


def problem(code: str, message: str, place: str, severity: Severity | None = None) -> Diagnostic:
    rule = RULES[code]
    return Diagnostic(code=code, message=message, place=place, severity=severity or rule.severity, hint=rule.hint)


def in_order(diagnostics: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(diagnostics, key=lambda each: (each.place, each.code, each.message)))
