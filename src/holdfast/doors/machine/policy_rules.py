"""Rules of a policy: alone, and beside the blueprint it is compiled with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.doors.machine.model import Blueprint, Completed, Emitted, Policy, PolicyRule, Timeout
from holdfast.doors.machine.places import Path
from holdfast.doors.machine.problems import Findings
from holdfast.doors.machine.resolution import Entries, winners
from holdfast.doors.machine.rules import check_event, repeated
from holdfast.graph.machine import EFFECT, GATE

_SUCCESS: Final = "success"


def check_policy(policy: Policy, findings: Findings) -> None:
    """Report the rules that the policy breaks beside any blueprint."""
    repeated(
        ((each.code, ("params", each.index, "code")) for each in policy.params), "MACHINE_DUPLICATE_PARAM", findings
    )
    repeated(
        ((each.state, ("timeouts", each.index, "state")) for each in policy.timeouts),
        "MACHINE_DUPLICATE_TIMEOUT",
        findings,
    )
    known = {each.code for each in policy.params} if policy.has_all_params else None
    for rule in policy.rules:
        _check_params(rule.params, ("rules", rule.index), known, findings)
        _check_failure(rule.complete, ("rules", rule.index), f"The rule of {rule.state!r}", findings)
        for hook in rule.emit:
            _check_hook(hook, ("rules", rule.index, "emit", hook.index), known, findings)


def _check_failure(complete: Completed | None, path: Path, whose: str, findings: Findings) -> None:
    if complete is not None and complete.success is not None and complete.failure is None:
        message = f"{whose} has an event for success and none for failure."
        findings.warn("MACHINE_FAILURE_MISSING", (*path, "complete"), message)


def _check_params(codes: Iterable[str], path: Path, known: set[str] | None, findings: Findings) -> None:
    if known is None:
        return
    for position, code in enumerate(codes):
        if code not in known:
            message = f"There is no parameter {code!r}."
            findings.add(
                "MACHINE_PARAM_UNKNOWN", (*path, "params", position), message, hint=findings.nearest(code, known)
            )


def _check_hook(hook: Emitted, path: Path, known: set[str] | None, findings: Findings) -> None:
    _check_params(hook.params, path, known, findings)
    if hook.codes != 1:
        there = "both event and route" if hook.codes else "neither event nor route"
        findings.add("MACHINE_HOOK_AMBIGUOUS", path, f"The hook has {there}.")
    if hook.type != EFFECT:
        _check_failure(hook.complete, path, f"{hook.code!r}", findings)
    elif hook.complete is not None:
        message = f"{hook.code!r} is an effect and has `complete`."
        findings.add("MACHINE_EFFECT_COMPLETES", (*path, "complete"), message)
    if hook.type == GATE and hook.order is None:
        message = f"{hook.code!r} is called a gate and has no order, so nothing waits for it."
        findings.warn("MACHINE_GATE_UNORDERED", (*path, "type"), message)


def check_pair(blueprint: Blueprint, policy: Policy, findings: Findings) -> None:
    """Report the rules that the policy breaks beside this blueprint."""
    _check_target(blueprint, policy, findings)
    entries = Entries(blueprint)
    for rule in policy.rules:
        _check_rule(rule, blueprint, entries, findings)
    for timeout in policy.timeouts:
        _check_timeout(timeout, blueprint, entries, findings)
    if entries.is_whole:
        _check_reach(policy, blueprint, entries, findings)


def _check_target(blueprint: Blueprint, policy: Policy, findings: Findings) -> None:
    if policy.definition is not None and blueprint.name and policy.definition != blueprint.name:
        message = f"The policy is for {policy.definition!r}, the blueprint is that of {blueprint.name!r}."
        findings.add("MACHINE_POLICY_FOREIGN", ("for", "definition"), message)
    elif policy.version is not None and policy.version != blueprint.version:
        message = f"The policy was written for version {policy.version}; the blueprint has version {blueprint.version}."
        findings.warn("MACHINE_POLICY_VERSION", ("for", "version"), message)


def _is_known(state: str, path: Path, blueprint: Blueprint, entries: Entries, findings: Findings) -> bool:
    if state in entries.states:
        return True
    if blueprint.has_all_states:
        hint = findings.nearest(state, entries.states)
        message = f"The blueprint has no state {state!r}."
        findings.add("MACHINE_POLICY_STATE_UNKNOWN", (*path, "state"), message, hint=hint, severity="warning")
    return False


def _check_rule(rule: PolicyRule, blueprint: Blueprint, entries: Entries, findings: Findings) -> None:
    path: Path = ("rules", rule.index)
    is_known = _is_known(rule.state, path, blueprint, entries, findings)
    taken = entries.leaving[rule.state] if is_known and entries.is_whole else None
    if rule.via is not None:
        check_event(rule.via, (*path, "via"), blueprint, findings)
    _check_completion(rule.complete, path, taken, blueprint, findings)
    for hook in rule.emit:
        _check_completion(hook.complete, (*path, "emit", hook.index), taken, blueprint, findings)
    _check_gates(rule, blueprint, findings)


def _check_completion(
    complete: Completed | None, path: Path, taken: set[str] | None, blueprint: Blueprint, findings: Findings
) -> None:
    for key, ref in () if complete is None else ((_SUCCESS, complete.success), ("failure", complete.failure)):
        if ref is None:
            continue
        place = (*path, "complete", key)
        event = check_event(ref, place, blueprint, findings)
        if event is not None and taken is not None and event not in taken:
            findings.warn("MACHINE_COMPLETE_UNTAKEN", place, f"No transition leaves this state on {event!r}.")


def _check_gates(rule: PolicyRule, blueprint: Blueprint, findings: Findings) -> None:
    first: dict[int, tuple[str | None, str | None]] = {}
    for hook in rule.emit:
        if hook.order is None or hook.type == EFFECT:
            continue
        meant = _events(hook.complete, blueprint)
        if first.setdefault(hook.order, meant) != meant:
            message = f"Gates of order {hook.order} complete with different events."
            findings.add("MACHINE_GATES_DIFFER", ("rules", rule.index, "emit", hook.index), message)


def _events(complete: Completed | None, blueprint: Blueprint) -> tuple[str | None, str | None]:
    refs = (None, None) if complete is None else (complete.success, complete.failure)
    success, failure = (None if ref is None else blueprint.event(ref) or str(ref) for ref in refs)
    return success, failure


def _check_timeout(timeout: Timeout, blueprint: Blueprint, entries: Entries, findings: Findings) -> None:
    path: Path = ("timeouts", timeout.index)
    is_known = _is_known(timeout.state, path, blueprint, entries, findings)
    if is_known and entries.states[timeout.state].is_final:
        findings.warn("MACHINE_TIMEOUT_UNUSED", (*path, "state"), f"{timeout.state!r} is final.")
    if timeout.event is None:
        return
    event = check_event(timeout.event, (*path, "timeout_event"), blueprint, findings)
    is_certain = is_known and entries.is_whole and event is not None
    if is_certain and event not in entries.leaving[timeout.state]:
        message = f"No transition leaves {timeout.state!r} on {event!r}."
        findings.add("MACHINE_TIMEOUT_UNTAKEN", (*path, "timeout_event"), message)


def _check_reach(policy: Policy, blueprint: Blueprint, entries: Entries, findings: Findings) -> None:
    """Warn of rules that no transition can bring to bear."""
    used = {rule.index for rules in winners(policy, blueprint, entries).values() for rule in rules.values()}
    for rule in policy.rules:
        via = None if rule.via is None else blueprint.event(rule.via)
        is_known = rule.state in entries.states and (rule.via is None or via is not None)
        if is_known and rule.index not in used:
            leading = entries.leading[rule.state]
            on = "" if rule.via is None else f" on {via!r}"
            is_overruled = bool(leading) if rule.via is None else via in leading
            why = "later rules come before it" if is_overruled else f"no transition leads there{on}"
            findings.warn("MACHINE_RULE_UNREACHED", ("rules", rule.index), f"This rule is never used: {why}.")
