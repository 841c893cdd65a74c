"""The rules across keys: names that must exist, events that can happen, transitions that must not be missing."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from holdfast.doors.steps.building import Draft
from holdfast.doors.steps.model import ENGINE_EVENTS, PEOPLE, Step, Transition, Workflow
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import Mark

CALLS: Final = frozenset({"system", "notification"})
RESERVED_METADATA: Final = frozenset({"name", "type", "description", "workflow", "input_schema"})
OF_A_CALL: Final = ("input", "output", "retry", "call_timeout", "call_on")
DECIDERS: Final = frozenset({"approved_by", "rejected_by"})


def check_rules(draft: Draft, findings: Findings) -> bool:
    """Report every broken rule, and return whether every name means one step.

    Missing transitions are reported only if all steps and transitions could be read.
    """
    before = findings.errors
    rules = _Rules(draft.workflow, draft.ids, findings)
    rules.ids()
    rules.references()
    names_are_sound = findings.errors == before
    rules.timeouts()
    for step in draft.workflow.steps:
        rules.step(step)
    for transition in draft.workflow.transitions:
        rules.transition(transition)
    if draft.is_whole:
        for step in draft.workflow.steps:
            rules.ways(step)
    return names_are_sound


class _Rules:
    def __init__(self, workflow: Workflow, known: frozenset[str], findings: Findings) -> None:
        self.workflow = workflow
        self.names = known
        self.findings = findings
        self.steps: dict[str, Step] = {}
        self.leaving: defaultdict[str, list[Transition]] = defaultdict(list)
        for transition in workflow.transitions:
            self.leaving[transition.source].append(transition)

    def add(self, code: str, message: str, mark: Mark, hint: str = "") -> None:
        self.findings.add(code, message, mark, hint=hint)

    def at(self, item: Step | Transition, *path: str) -> Mark:
        return self.workflow.mark("steps" if isinstance(item, Step) else "transitions", item.index, *path)

    # --- names ----------------------------------------------------------------------------------------------------

    def ids(self) -> None:
        for step in self.workflow.steps:
            first = self.steps.setdefault(step.id, step)
            if first is not step:
                line = self.at(first, "id").line
                message = f"The step {step.id!r} is there twice, first in line {line}."
                self.add("STEPS_DUPLICATE", message, self.at(step, "id"))

    def references(self) -> None:
        workflow = self.workflow
        for key in ("initial_step", "on_timeout"):
            self.known(getattr(workflow, key), workflow.mark(key))
        for step in workflow.steps:
            self.known(step.on_timeout, self.at(step, "on_timeout"))
        for transition in workflow.transitions:
            self.known(transition.source, self.at(transition, "from"))
            self.known(transition.target, self.at(transition, "to"))

    def timeouts(self) -> None:
        workflow = self.workflow
        has_timeout = workflow.timeout is not None or any(step.timeout is not None for step in workflow.steps)
        if workflow.on_timeout is not None and not has_timeout and ("timeout",) not in workflow.marks:
            self.add("STEPS_TIMEOUT_UNUSED", "Nothing in this workflow has a timeout.", workflow.mark("on_timeout"))

    def known(self, id: str | None, mark: Mark) -> None:
        if id is not None and id not in self.names:
            self.add(
                "STEPS_TARGET_UNKNOWN",
                f"There is no step {id!r} in this workflow.",
                mark,
                self.findings.nearest(id, sorted(self.names)),
            )

    # --- steps ----------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        for key in sorted(RESERVED_METADATA & step.metadata.keys()):
            self.add("STEPS_NAME_RESERVED", f"{key!r} is kept by the engine itself.", self.at(step, "metadata", key))
        for key in step.output or ():
            if key.startswith("_") or key in DECIDERS:
                message = f"{key!r} in the state is the engine's own."
                self.add("STEPS_NAME_RESERVED", message, self.at(step, "output", key))
        if step.assignee is not None:
            self.assignee(step)
        if step.type == "wait":
            self.wait(step)
        if step.type in PEOPLE:
            self.call_of_person(step)
        self.step_timeout(step)

    def assignee(self, step: Step) -> None:
        place = ("steps", step.index, "assignee")
        given = [key for key in ("user", "role", "expression") if (*place, key) in self.workflow.marks]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            message = f"An assignee is a user, a role or an expression; this has {found}."
            self.add("STEPS_ASSIGNEE_AMBIGUOUS", message, self.at(step, "assignee"))

    def call_of_person(self, step: Step) -> None:
        if ("steps", step.index, "operation") not in self.workflow.marks:
            for key in OF_A_CALL:
                if ("steps", step.index, key) in self.workflow.marks:
                    message = f"{key!r} belongs to an operation, and {step.id!r} has none."
                    self.add("STEPS_KEY_MISPLACED", message, self.at(step, key, "key"))
            return
        events = {transition.event for transition in self.leaving[step.id]} - {"error", "timeout"}
        for event in step.call_on:
            if event not in events:
                message = f"No transition from {step.id!r} takes {event!r}, so nothing is called after it."
                hint = self.findings.nearest(event, sorted(events))
                self.add("STEPS_EVENT_UNEXPECTED", message, self.at(step, "call_on"), hint)

    def wait(self, step: Step) -> None:
        written = {key for key in ("duration", "until", "event") if ("steps", step.index, key) in self.workflow.marks}
        if len(written) != 1:
            found = " and ".join(sorted(written)) or "none of them"
            message = f"A wait is for a duration, until a moment or for an event; this has {found}."
            self.add("STEPS_WAIT_AMBIGUOUS", message, self.at(step))
        elif "event" not in written:
            for key in ("key", "capabilities", "timeout", "on_timeout"):
                if ("steps", step.index, key) in self.workflow.marks:
                    mark = self.at(step, key, "key")
                    self.add("STEPS_KEY_MISPLACED", f"{key!r} belongs to a wait for an event.", mark)
        elif step.event in ENGINE_EVENTS:
            message = f"{step.event!r} is the engine's own event; nobody can send it."
            self.add("STEPS_NAME_RESERVED", message, self.at(step, "event"))

    def step_timeout(self, step: Step) -> None:
        transition = next((each for each in self.leaving[step.id] if each.event == "timeout"), None)
        is_timed = ("steps", step.index, "timeout") in self.workflow.marks or ("timeout",) in self.workflow.marks
        if step.on_timeout is not None:
            if transition is not None:
                message = f"{step.id!r} has on_timeout and a transition on timeout."
                self.add("STEPS_TIMEOUT_AMBIGUOUS", message, self.at(transition))
            if not is_timed:
                message = f"Neither {step.id!r} nor the workflow has a timeout."
                self.add("STEPS_TIMEOUT_UNUSED", message, self.at(step, "on_timeout"))
        elif transition is not None and not is_timed and step.type != "terminal":
            message = f"Neither {step.id!r} nor the workflow has a timeout, so the event never happens."
            self.add("STEPS_TIMEOUT_UNUSED", message, self.at(transition, "event"))
        if step.timeout is not None and not (step.on_timeout or transition or self.workflow.on_timeout):
            self.findings.add(
                "STEPS_TIMEOUT_WITHOUT_STEP",
                f"When the time of {step.id!r} is up there is nowhere to go.",
                self.at(step, "timeout"),
                severity="warning",
            )

    # --- transitions ----------------------------------------------------------------------------------------------

    def transition(self, transition: Transition) -> None:
        step = self.steps.get(transition.source)
        if step is None:
            return
        event = transition.event
        if step.type == "terminal":
            message = f"Nothing leaves {step.id!r}: it is terminal."
            self.add("STEPS_TERMINAL_LEFT", message, self.at(transition))
            return
        if complaint := _impossible(step, event):
            self.add("STEPS_EVENT_UNEXPECTED", complaint, self.at(transition, "event"))
        is_sent = step.type in PEOPLE or (step.type == "wait" and step.event is not None)
        shadow = next((each for each in self.leaving[step.id] if _always_taken(each, event)), transition)
        if shadow is not transition and _always_taken(transition, event):
            line = self.at(shadow).line
            message = f"It is never taken: the transition of line {line} takes every {event!r} of {step.id!r}."
            self.add("STEPS_TRANSITION_SHADOWED", message, self.at(transition))
        if transition.guard is not None and not (is_sent and event not in ("error", "timeout")):
            message = f"Nobody sends {event!r} of {step.id!r}, so nobody's capability can be asked."
            self.add("STEPS_GUARD_MISPLACED", message, self.at(transition, "guard"))

    def ways(self, step: Step) -> None:
        """Report a step that no transition leaves when it is done."""
        if step.type == "terminal" or self.steps[step.id] is not step:
            return
        events = {transition.event for transition in self.leaving[step.id]}
        if step.type in PEOPLE:
            if not events - {"error", "timeout"}:
                message = f"{step.id!r} waits for somebody, but no transition takes what they send."
                self.add("STEPS_TRANSITION_MISSING", message, self.at(step), "Add one, such as on event approved.")
        elif not events & {"completed", step.event}:
            message = f"{step.id!r} has no transition on completed."
            self.add("STEPS_TRANSITION_MISSING", message, self.at(step))


def _always_taken(transition: Transition, event: str) -> bool:
    return transition.event == event and transition.condition is None and transition.guard is None


def _impossible(step: Step, event: str) -> str:
    """The reason for which an event can never happen in this step, or an empty text."""
    if step.type == "notification" and event == "error":
        return "A notification never fails: an error counts as completed."
    if step.type in CALLS and event not in ENGINE_EVENTS:
        return f"A {step.type} step knows completed, error and timeout; nobody sends it {event!r}."
    if step.type in PEOPLE and event == "error" and step.operation is None:
        return f"{step.id!r} waits for somebody and calls nothing, so it cannot fail."
    if step.type == "wait" and event == "error":
        return f"{step.id!r} waits and cannot fail."
    if step.type == "wait" and step.event is None and event != "completed":
        return f"A wait for a moment knows only completed, not {event!r}."
    return ""
