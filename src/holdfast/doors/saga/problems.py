"""Problems of a definition, all of them at once, each with a code, a sentence, a place and a remedy."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import DefinitionError

REMEDIES: Final[dict[str, str]] = {
    "BRANCH_EMPTY": "Give the branch a step, or leave it out.",
    "BRANCH_INVALID": "Write Branch().step(…); parallel() also takes functions and (name, handler) pairs.",
    "COMPENSATION_MISPLACED": "Give undo= to the step, call, human, wait_event or sub_flow it undoes.",
    "FLOW_CYCLE": "Put a condition before it, or start another flow.",
    "FLOW_EMPTY": "Add at least one step before build().",
    "FLOW_NAME_INVALID": "Use 1 to 200 bytes of visible text without '@'.",
    "FLOW_OPTION_INVALID": "`holdfast docs sagas` lists what each option takes.",
    "FLOW_TOO_DEEP": "Move the inner branches into a flow of their own and start it with sub_flow().",
    "FLOW_VERSION_INVALID": "Versions are whole numbers from 1.",
    "FORK_TOO_NARROW": "Give it two or more branches; one branch alone is a row of steps.",
    "FORK_WITHOUT_JOIN": "Write join() right behind the fork; what shall run before the join belongs into a branch.",
    "HANDLER_AMBIGUOUS": "Rename one of the functions, or register both yourself and name them in the steps.",
    "HANDLER_INVALID": "Give the name of a handler, or a function defined with def: its name is the handler's name.",
    "JOIN_WITHOUT_FORK": "Write join() right behind the fork() or parallel() it closes.",
    "REJOIN_WITHOUT_CONDITION": "rejoin() closes a condition of the same path, or ends the branch of an `otherwise`.",
    "SAVE_POINT_IN_BRANCH": "Put the save point before or behind the branches: a rollback stops there as a whole.",
    "STEP_DUPLICATE": "Give each step a name of its own, and its compensation another: undo=Undo(…, name=…).",
    "STEP_EXPRESSION_INVALID": "`holdfast docs expressions` describes the language and its limits.",
    "STEP_NAME_RESERVED": "Use 1 to 200 bytes of visible text without '@'; 'cond#…' and '_root_' are the engine's own.",
    "STEP_OPTION_INVALID": "`holdfast docs sagas` lists what each option takes.",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    place: str  # "name", "steps.reserve", "steps.reserve.timeout"
    severity: str = "error"
    hint: str = ""


def problem(code: str, message: str, place: str) -> Problem:
    return Problem(code=code, message=message, place=place, hint=REMEDIES[code])


def require_none(flow: str, problems: tuple[Problem, ...]) -> None:
    if not problems:
        return
    first = problems[0]
    more = f" ({len(problems)} problems in all)" if len(problems) > 1 else ""
    raise DefinitionError(
        f"The flow {flow!r} cannot be built: {first.message}{more}",
        code=first.code,
        hint=first.hint,
        diagnostics=problems,
        place=first.place,
    )
