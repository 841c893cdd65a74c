"""Lower a blueprint and its policy to the graph: each state is one node, each transition one edge.

Everything is resolved here: events are names, parameters are data, and each event that leads into a state has its own
rule. Nodes and edges are sorted, and a priority counts only the transitions of one state and event, so the order in
which a document lists its parts changes the graph only where it has a meaning: among transitions with conditions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from holdfast.doors.machine.model import Blueprint, Completed, Emitted, PolicyRule, State, Transition
from holdfast.doors.machine.model import Policy as MachinePolicy
from holdfast.doors.machine.resolution import Entries, winners
from holdfast.doors.machine.rules import VARIABLES
from holdfast.graph.machine import (
    GATE,
    Completion,
    Hook,
    MachineConfig,
    Param,
    Rule,
    StateConfig,
    StateTimeout,
)
from holdfast.graph.model import Edge, Graph, Node, Policy, dump_struct
from holdfast.payloads import canonical, hash_json

POLICY: Final = Policy(data="context", on_error="suspend", on_cancel="stop", early=False)
LONGEST_ID: Final = 200  # bytes
LARGEST: Final = 1 << 20  # bytes of all resolved rules
_HOOK_BYTES: Final = 200


def lower(blueprint: Blueprint, policy: MachinePolicy | None, version: int) -> Graph:
    """Make the graph of a sound blueprint and a sound policy."""
    states = sorted(blueprint.states, key=lambda state: state.name)
    configs = state_configs(blueprint, policy)
    return Graph(
        name=f"{blueprint.environment}.{blueprint.name}",
        version=version,
        kind="machine",
        entry=next(state.name for state in states if state.is_initial),
        nodes=tuple(_node(state, configs[state.name]) for state in states),
        edges=tuple(sorted(_edges(blueprint), key=lambda edge: edge.id)),
        policy=POLICY,
        variables=VARIABLES,
        config=dump_struct(_machine_config(blueprint, policy, configs), "machine"),
    )


def _node(state: State, config: StateConfig) -> Node:
    kind = "terminal" if state.is_final else "state"
    return Node(id=state.name, kind=kind, config=dump_struct(config, "state"))


# --- transitions ------------------------------------------------------------------------------------------------------


def _edges(blueprint: Blueprint) -> Iterator[Edge]:
    groups: defaultdict[tuple[str, str], list[Transition]] = defaultdict(list)
    for transition in blueprint.transitions:
        groups[transition.source, _event(blueprint, transition.event)].append(transition)
    edges = [
        Edge(
            id=f"{source}:{event}>{transition.target}" + (f"#{priority}" if priority else ""),
            source=source,
            target=transition.target,
            on=event,
            when=transition.when,
            guard=transition.guard,
            priority=priority,
        )
        for (source, event), group in groups.items()
        for priority, transition in enumerate(sorted(group, key=_is_default))
    ]
    counts = Counter(edge.id for edge in edges)
    plain = {id for id, count in counts.items() if count == 1 and len(id.encode()) <= LONGEST_ID}
    return (edge if edge.id in plain else _hashed(edge) for edge in edges)


def _is_default(transition: Transition) -> bool:
    """Check if a transition always holds. It is tried last, wherever it is listed."""
    return transition.when is None and transition.guard is None


def _hashed(edge: Edge) -> Edge:
    """Name an edge by its content where names of states and events are too long or look alike side by side."""
    content = canonical([edge.source, edge.on, edge.target, edge.priority])
    return msgspec.structs.replace(edge, id=f"edge#{sha256(content).hexdigest()[:32]}")


def _event(blueprint: Blueprint, ref: int | str) -> str:
    name = blueprint.event(ref)
    assert name is not None, "checked: MACHINE_EVENT_UNKNOWN"
    return name


# --- policy -----------------------------------------------------------------------------------------------------------


def state_configs(blueprint: Blueprint, policy: MachinePolicy | None) -> dict[str, StateConfig]:
    """Resolve the policy: what each state carries."""
    entries = Entries(blueprint)
    if policy is None:
        return {state.name: StateConfig(category=state.category) for state in blueprint.states}
    data = {param.code: param.data for param in policy.params}
    timeouts = {
        timeout.state: StateTimeout(
            after=timeout.after,
            event=None if timeout.event is None else _event(blueprint, timeout.event),
            mode=timeout.mode,
        )
        for timeout in policy.timeouts
    }
    resolved: dict[int, Rule] = {}
    rules = winners(policy, blueprint, entries)
    for rule in (rule for found in rules.values() for rule in found.values()):
        resolved.setdefault(rule.index, _rule(rule, blueprint, data))
    return {
        state.name: StateConfig(
            category=state.category,
            rules={event: resolved[rule.index] for event, rule in sorted(rules[state.name].items())},
            timeout=None if state.is_final else timeouts.get(state.name),
        )
        for state in blueprint.states
    }


def _rule(rule: PolicyRule, blueprint: Blueprint, data: dict[str, Any]) -> Rule:
    return Rule(
        params=_params(rule.params, data),
        complete=_completion(rule.complete, blueprint),
        hooks=tuple(_hook(hook, blueprint, data) for hook in rule.emit),
    )


def _hook(hook: Emitted, blueprint: Blueprint, data: dict[str, Any]) -> Hook:
    assert hook.code is not None, "checked: MACHINE_HOOK_AMBIGUOUS"
    return Hook(
        code=hook.code,
        type=hook.type or GATE,
        order=hook.order,
        ack=hook.ack,
        not_before=hook.not_before,
        deadline=hook.deadline,
        label=hook.label,
        params=_params(hook.params, data),
        complete=_completion(hook.complete, blueprint),
    )


def _params(codes: Iterable[str], data: dict[str, Any]) -> tuple[Param, ...]:
    return tuple(Param(code=code, data=data[code]) for code in codes)


def _completion(complete: Completed | None, blueprint: Blueprint) -> Completion | None:
    if complete is None:
        return None
    success, failure = (None if ref is None else _event(blueprint, ref) for ref in (complete.success, complete.failure))
    return Completion(success=success, failure=failure)


def _machine_config(
    blueprint: Blueprint, policy: MachinePolicy | None, configs: dict[str, StateConfig]
) -> MachineConfig:
    config = MachineConfig(
        environment=blueprint.environment,
        definition=blueprint.name,
        blueprint=blueprint.version,
        codes={event.name: event.code for event in sorted(blueprint.events, key=lambda event: event.name)},
    )
    if policy is None:
        return config
    return msgspec.structs.replace(
        config, policy=_policy_hash(policy, configs), policy_name=policy.name, stale=policy.stale
    )


def _policy_hash(policy: MachinePolicy, configs: dict[str, StateConfig]) -> str:
    """Hash the share of the policy in the graph: rules and timeouts of each state, and its staleness."""
    states = {
        name: dump_struct(msgspec.structs.replace(config, category=None), "state") for name, config in configs.items()
    }
    return hash_json({"states": states, "stale": policy.stale})


def resolved_size(blueprint: Blueprint, policy: MachinePolicy) -> int:
    """Estimate, without making it, the bytes of the graph's share of the policy: each entry has a copy of its rule."""
    sizes = {param.code: len(canonical(param.data)) for param in policy.params}
    rules = winners(policy, blueprint, Entries(blueprint))
    return sum(_rule_size(rule, sizes) for found in rules.values() for rule in found.values())


def _rule_size(rule: PolicyRule, sizes: dict[str, int]) -> int:
    hooks = sum(_HOOK_BYTES + sum(sizes.get(code, 0) for code in hook.params) for hook in rule.emit)
    return hooks + sum(sizes.get(code, 0) for code in rule.params)
