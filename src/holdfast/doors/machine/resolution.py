"""Rules of entries: for a state and an event that leads there, the last rule that names both, else the state alone."""

from __future__ import annotations

from holdfast.doors.machine.model import Blueprint, Policy, PolicyRule


class Entries:
    """The states of a blueprint, with the names of the events that lead to each and that leave it.

    `is_whole`: no part of the blueprint is missing or leads nowhere, so a name absent here does not exist.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.states = {state.name: state for state in reversed(blueprint.states)}
        self.leading: dict[str, set[str]] = {name: set() for name in self.states}
        self.leaving: dict[str, set[str]] = {name: set() for name in self.states}
        self.is_whole = blueprint.has_all_states and blueprint.has_all_events and blueprint.has_all_transitions
        for transition in blueprint.transitions:
            event = blueprint.event(transition.event)
            ends = {transition.source, transition.target}
            self.is_whole &= event is not None and ends <= self.states.keys()
            if event is not None:
                self.leading.setdefault(transition.target, set()).add(event)
                self.leaving.setdefault(transition.source, set()).add(event)


def winners(policy: Policy, blueprint: Blueprint, entries: Entries) -> dict[str, dict[str, PolicyRule]]:
    """Find the rule of each state and event; an event without a rule has no entry."""
    found: dict[str, dict[str, PolicyRule]] = {name: {} for name in entries.states}
    for state, events in entries.leading.items():
        general = [rule for rule in policy.rules if rule.state == state and rule.via is None]
        if general and state in found:
            found[state] = dict.fromkeys(sorted(events), general[-1])
    for rule in policy.rules:
        event = None if rule.via is None else blueprint.event(rule.via)
        if event is not None and rule.state in found and event in entries.leading[rule.state]:
            found[rule.state][event] = rule
    return found
