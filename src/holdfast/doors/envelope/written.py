"""The written form of contracts and patches: the data in files of YAML, made by builders and by printing."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from holdfast.doors.durations import write_duration
from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition, PatchEdge, PatchNode, SlotPatch
from holdfast.graph.model import dump_struct
from holdfast.payloads import canonical, hash_json

SPANS: Final = frozenset({"due", "delay", "deadline"})
_KEYS: Final = {"source": "from", "target": "to"}
_FOR_PEOPLE: Final = frozenset({"about", "version"})


def contract_data(contract: ContractDefinition) -> dict[str, Any]:
    """Take a contract apart; keys that hold their default are left out."""
    data = _plain(contract)
    return {"type": contract.type, "version": contract.version, **_without(data, "type", "version")}


def patch_data(patch: PatchDefinition) -> dict[str, Any]:
    """Take a patch apart; keys that hold their default are left out."""
    head = {"contract": patch.contract, "envelope": patch.envelope}
    slots = {name: slot_data(slot) for name, slot in patch.slots.items()}
    return {**head, **_without(_plain(patch), *head, "slots"), **({"slots": slots} if slots else {})}


def slot_data(slot: SlotPatch) -> dict[str, Any]:
    nodes = [node_data(node) for node in slot.nodes]
    edges = [_plain(edge) for edge in slot.edges]
    return {
        **_without(_plain(slot), "nodes", "edges"),
        **({"nodes": nodes} if nodes else {}),
        **({"edges": edges} if edges else {}),
    }


def node_data(node: PatchNode) -> dict[str, Any]:
    data = _plain(node)
    return {key: write_duration(value) if key in SPANS else value for key, value in data.items()}


def contract_hash(contract: ContractDefinition) -> str:
    """The SHA-256 of everything that changes behaviour, whatever the order in which it was written.

    The version is not part of it, so that the same contract is known again under another one."""
    data = contract_data(contract)
    amendment = {key: _sorted(value) for key, value in data.get("amendment", {}).items()}
    return hash_json(
        {
            **{key: _sorted(value) for key, value in data.items() if key not in _FOR_PEOPLE},
            "amendment": amendment,
            "initial": contract.states[0].name,
        }
    )


def patch_hash(patch: PatchDefinition) -> str:
    """The SHA-256 of a patch without the number that the engine gives it, whatever the order of its parts."""
    return hash_json(
        {
            "contract": patch.contract,
            "envelope": patch.envelope,
            "slots": {name: _slot_content(slot) for name, slot in patch.slots.items() if slot != SlotPatch()},
            "policies": policy_contents(patch),
        }
    )


def policy_contents(patch: PatchDefinition) -> list[dict[str, Any]]:
    """The policies of a patch by name; their order has no meaning."""
    found: list[dict[str, Any]] = []
    for policy in sorted(patch.policies, key=lambda policy: policy.name):
        data = dump_struct(policy, "policy")
        data.pop("about", None)
        found.append(data | ({"on": sorted(policy.on)} if policy.on else {}))
    return found


def _slot_content(slot: SlotPatch) -> dict[str, Any]:
    return {
        **_without(dump_struct(slot, "patch"), "nodes", "edges"),
        "nodes": sorted((dump_struct(node, "node") for node in slot.nodes), key=lambda each: each["id"]),
        "edges": sorted((dump_struct(edge, "edge") for edge in slot.edges), key=hash_json),
    }


def _sorted(value: Any) -> Any:
    """Sort a list whose order means nothing, and the lists of names in its entries."""
    if not isinstance(value, list):
        return value
    entries = [_content(entry) for entry in cast(list[Any], value)]
    return sorted(entries, key=canonical)


def _content(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    fields = cast(dict[str, Any], entry).items()
    return {key: _sorted(value) for key, value in fields if key not in _FOR_PEOPLE}


def _without(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}


def _plain(value: ContractDefinition | PatchDefinition | SlotPatch | PatchNode | PatchEdge | Any) -> dict[str, Any]:
    """Turn a struct into data under the keys of the format."""
    data: dict[str, Any] = {}
    for field in msgspec.structs.fields(value):
        item = getattr(value, field.name)
        if field.default is not msgspec.NODEFAULT and type(item) is type(field.default) and item == field.default:
            continue
        if field.default_factory is not msgspec.NODEFAULT and item == field.default_factory():
            continue
        data[_KEYS.get(field.name, field.name)] = _value(item)
    return data


def _value(item: Any) -> Any:
    if isinstance(item, msgspec.Struct):
        return _plain(item)
    if isinstance(item, tuple):
        return [_value(each) for each in cast(tuple[Any, ...], item)]
    return item
