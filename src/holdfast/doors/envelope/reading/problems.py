"""Problems of contracts and patches: the remedy of each code."""

from __future__ import annotations

from typing import Final

from holdfast.doors.envelope.decision_tables.problems import TABLE_REMEDIES
from holdfast.doors.yaml import problems as yaml
from holdfast.doors.yaml.problems import Findings

_CONTRACT_KEYS: Final = "`holdfast docs contracts` lists the keys with what each takes."
_PATCH_KEYS: Final = "`holdfast docs patches` lists the keys with what each takes."
_DURATION: Final = 'Write "90s", "15m", "72h", "1d12h", or ISO 8601 such as "P3D"; at most 100 years.'
_EXPRESSION: Final = "`holdfast docs expressions` describes the language and its limits."

REMEDIES: Final[dict[str, str]] = {
    **yaml.REMEDIES,
    "YAML_EMPTY": "Begin with `contract:` or `patch:`.",
    "YAML_SEVERAL_DOCUMENTS": "Write several contracts under `contracts:`, several patches under `patches:`.",
    "CONTRACT_AMENDMENT_EMPTY": "Name the states in which it is offered, or the state a drift leads to.",
    "CONTRACT_CALL_UNKNOWN": "Name verbs and actions of this contract, or create, update or amend.",
    "CONTRACT_DUPLICATE": "Give each of them a name of its own.",
    "CONTRACT_ENDED": "Let it leave another state, or take `ends` from this one.",
    "CONTRACT_EXPRESSION_INVALID": _EXPRESSION,
    "CONTRACT_FIELD_UNKNOWN": "Name a field of this contract.",
    "CONTRACT_GATE_WITHOUT_SLOT": "Add a slot with this gate as its exit, or demand no approvals.",
    "CONTRACT_GATE_WITHOUT_WAY": "Make it the exit of the state's slot, or the rejected gate of one.",
    "CONTRACT_INITIAL_AMBIGUOUS": "Mark one state as the initial one, or none: then it is the first.",
    "CONTRACT_KEY_MISSING": _CONTRACT_KEYS,
    "CONTRACT_KEY_UNKNOWN": _CONTRACT_KEYS,
    "CONTRACT_MONEY_FRACTION": "Money is in whole minor units: write 1050 for 10.50.",
    "CONTRACT_NAME_CLASH": "States, verbs, gates and actions are named side by side: rename one of them.",
    "CONTRACT_NAME_RESERVED": "Choose another name: this one is the engine's own.",
    "CONTRACT_OPTION_UNKNOWN": _CONTRACT_KEYS,
    "CONTRACT_POLICY_EMPTY": "Give the policy a capability or a condition.",
    "CONTRACT_SLOT_ENTRY_WRONG": "Name a state or a gate of this contract.",
    "CONTRACT_SLOT_EXIT_WRONG": "Name a gate or a verb that leaves the state, or the state that the gate leads to.",
    "CONTRACT_SLOT_OVERLAP": "Keep one of the two; organisations put all their steps into one slot.",
    "CONTRACT_SLOT_REJECTED_WRONG": "Name another gate that leaves the same state.",
    "CONTRACT_STATE_STUCK": "Lead a verb or a gate out of it, amend it, or mark it with `ends`.",
    "CONTRACT_STATE_UNKNOWN": "Name a state of this contract.",
    "CONTRACT_GATE_WITHOUT_REJECTION": "Add a second gate from the same state, or name one as `rejected` of the slot.",
    "CONTRACT_STATE_ENDLESS": "Let a state that follows it end the instance: `ends`.",
    "CONTRACT_STATE_UNREACHABLE": "Lead a verb or a gate to it, or remove it.",
    "CONTRACT_TYPE_WRONG": _CONTRACT_KEYS,
    "CONTRACT_VALUE_INVALID": _CONTRACT_KEYS,
    "PATCH_APPROVERS_AMBIGUOUS": "Write exactly one of user, role and expression.",
    "PATCH_DUPLICATE_NODE": "Give each node of a slot a name of its own.",
    "PATCH_DUPLICATE_SLOT": "Write all steps of a slot into one filling.",
    "PATCH_DURATION_INVALID": _DURATION,
    "PATCH_KEY_MISPLACED": "`holdfast docs patches` shows what each kind of node takes.",
    "PATCH_KEY_MISSING": _PATCH_KEYS,
    "PATCH_KEY_UNKNOWN": _PATCH_KEYS,
    "PATCH_NAME_RESERVED": "Choose another name: in, out and rejected are the ports of the slot.",
    "PATCH_OPTION_UNKNOWN": _PATCH_KEYS,
    "PATCH_POLICY_EMPTY": "Give the policy a capability or a condition.",
    "PATCH_POLICY_TAKEN": "Give each policy a name of its own.",
    "PATCH_TIME_AMBIGUOUS": "Write exactly one of delay, until and cron.",
    "PATCH_TOO_LARGE": "Move steps into flows of their own and start them with sub_flow nodes.",
    "PATCH_TYPE_WRONG": _PATCH_KEYS,
    "PATCH_VALUE_INVALID": _PATCH_KEYS,
}


def findings_of(file: str) -> Findings:
    """Begin the list of problems of a file."""
    return Findings(file, TABLE_REMEDIES | REMEDIES)
