"""Problems of a file of steps: the remedy of each code."""

from __future__ import annotations

from typing import Final

from holdfast.doors.yaml import problems as yaml
from holdfast.doors.yaml.problems import Findings

REMEDIES: Final[dict[str, str]] = {
    **yaml.REMEDIES,
    "YAML_EMPTY": "Begin with `workflows:`.",
    "YAML_SEVERAL_DOCUMENTS": "Write several workflows under one `workflows:`, or one document per file.",
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


def findings_of(file: str) -> Findings:
    """Begin the list of problems of a file."""
    return Findings(file, REMEDIES)
