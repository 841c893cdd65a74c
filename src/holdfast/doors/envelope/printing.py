"""Contracts and patches printed back: as the code that builds an equal one, and as YAML that reads as an equal one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition, PatchNode, SlotPatch
from holdfast.doors.envelope.written import contract_data, node_data, patch_data
from holdfast.doors.layout import INDENT, Chain, Group, Layout, shown, value_layout
from holdfast.doors.yaml.writing import write_yaml

_VERBS: Final = {
    "fields": "field",
    "states": "state",
    "verbs": "verb",
    "gates": "gate",
    "slots": "slot",
    "actions": "action",
    "policies": "policy",
}
# What a verb takes by position behind the name, where it is given.
_POSITIONAL: Final[dict[str, tuple[str, ...]]] = {
    "field": ("type",),
    "verb": ("from", "to"),
    "gate": ("from", "to"),
    "slot": ("entry", "exit"),
    "edge": ("from", "to"),
    "join": ("mode",),
    "script": ("sets",),
    "rule": ("table", "table_version"),
    "action": ("action",),
    "wait_timer": ("delay",),
    "wait_event": ("event",),
    "webhook_out": ("url",),
    "notification": ("channel",),
    "sub_flow": ("flow", "flow_version"),
}


def contract_yaml(contract: ContractDefinition) -> str:
    """Write a file with this contract."""
    return write_yaml({"contract": contract_data(contract)})


def patch_yaml(patch: PatchDefinition) -> str:
    """Write a file with this patch."""
    return write_yaml({"patch": patch_data(patch)})


def contract_code(contract: ContractDefinition) -> str:
    """Write Python that assigns the built contract to `contract`."""
    data = contract_data(contract)
    head = Group("Contract(", (("", value_layout(contract.type)), *_named(data, ("version", "about"))))
    return _assignment("Contract", "contract", Chain((head, *_contract_calls(data), Group(".build(", ()))))


def patch_code(patch: PatchDefinition) -> str:
    """Write Python that assigns the built patch to `patch`."""
    data = patch_data(patch)
    head = Group("Patch(", (("", value_layout(patch.contract)), *_named(data, ("envelope", "version", "about"))))
    calls = [Group(".slot(", (("", value_layout(name)), ("", _fill(slot)))) for name, slot in patch.slots.items()]
    policies = [_call("policy", policy) for policy in data.get("policies", [])]
    imports = "Fill, Patch" if patch.slots else "Patch"
    return _assignment(imports, "patch", Chain((head, *calls, *policies, Group(".build(", ()))))


def _assignment(imports: str, name: str, chain: Chain) -> str:
    lines = (" " * INDENT + shown(call, INDENT) for call in chain.calls)
    return f"from holdfast import {imports}\n\n{name} = (\n" + "\n".join(lines) + "\n)\n"


def _contract_calls(data: dict[str, Any]) -> Iterator[Group]:
    for key, verb in _VERBS.items():
        yield from (_call(verb, entry) for entry in data.get(key, []))
    amendment = data.get("amendment")
    if amendment is not None:
        states = (("", value_layout(state)) for state in amendment.get("states", []))
        yield Group(".amendment(", (*states, *_named(amendment, ("drift",))))


def _fill(slot: SlotPatch) -> Layout:
    options = {key: getattr(slot, key) for key in ("window", "entry_mode", "exit_mode")}
    head = Group("Fill(", _named({key: value for key, value in options.items() if value is not None}, tuple(options)))
    nodes = (_node(node) for node in slot.nodes)
    edges = (_edge(msgspec.structs.asdict(edge)) for edge in slot.edges)
    return Chain((head, *nodes, *edges))


def _node(node: PatchNode) -> Group:
    data = node_data(node)
    approvers = data.pop("approvers", {})
    options = {key: value for key, value in data.items() if key not in ("id", "kind")}
    return _call(node.kind, {"name": node.id, **approvers, **{_option(key): value for key, value in options.items()}})


def _edge(edge: dict[str, Any]) -> Group:
    ends = (("", value_layout(edge["source"])), ("", value_layout(edge["target"])))
    given = {key: edge[key] for key in ("on", "when", "priority", "label")}
    defaults = {"on": "completed", "when": None, "priority": 0, "label": None}
    said = {key: value for key, value in given.items() if value != defaults[key]}
    return Group(".edge(", (*ends, *_named(said, tuple(said))))


def _option(key: str) -> str:
    """Tell the name that people see from the node's own, which comes first."""
    return "name=" if key == "name" else key


def _call(verb: str, entry: dict[str, Any]) -> Group:
    positional: list[str] = []
    for key in _POSITIONAL.get(verb, ()):
        if key not in entry:
            break
        positional.append(key)
    first = (("", value_layout(entry[key])) for key in ("name", *positional))
    rest = (key for key in entry if key not in ("name", *positional))
    return Group(f".{verb}(", (*first, *((f"{key.removesuffix('=')}=", value_layout(entry[key])) for key in rest)))


def _named(data: dict[str, Any], keys: tuple[str, ...]) -> tuple[tuple[str, Layout], ...]:
    return tuple((f"{key}=", value_layout(data[key])) for key in keys if key in data)
