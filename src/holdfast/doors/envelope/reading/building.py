"""Build contracts and patches from trees: parts that cannot be read are reported and left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

import msgspec

from holdfast.doors.envelope.model import (
    Action,
    Amendment,
    Approvers,
    ContractDefinition,
    DataField,
    Gate,
    PatchDefinition,
    PatchEdge,
    PatchNode,
    PolicyRule,
    Slot,
    SlotPatch,
    State,
    Verb,
)
from holdfast.doors.envelope.reading.format import CONTRACT, MOST_EDGES, MOST_NODES, PATCH, TOO_LARGE
from holdfast.doors.yaml.decode import MISFIT, Misfit, Taker
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.tree import Mapping, Mark, Path, Sequence, Tree, nearest_mark

_PARTS: Final[dict[str, type[msgspec.Struct]]] = {
    "fields": DataField,
    "states": State,
    "verbs": Verb,
    "gates": Gate,
    "actions": Action,
    "policies": PolicyRule,
    "slots": Slot,
}
_KEYS: Final = {"from": "source", "to": "target"}
_WRITTEN: Final[dict[str | int, str]] = {"source": "from", "target": "to"}
StructT = TypeVar("StructT", bound=msgspec.Struct)


class Part(msgspec.Struct, frozen=True):
    """A readable entry of a list, with the place where it was written."""

    path: Path
    value: Any


class ContractDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The readable part of a contract."""

    contract: ContractDefinition
    parts: dict[str, tuple[Part, ...]]  # per list of the contract
    initial: tuple[Path, ...]  # the marks of initial states
    broken: frozenset[str]  # lists with entries that could not be read
    marks: dict[Path, Mark]

    def mark(self, path: Path, *rest: str | int) -> Mark:
        return nearest_mark(self.marks, (*path, *rest))


class PatchDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The readable part of a patch."""

    patch: PatchDefinition
    parts: dict[str, tuple[Part, ...]]  # the nodes of each slot, and the policies under no name
    edges: dict[str, tuple[Part, ...]]  # those of each slot
    marks: dict[Path, Mark]

    def mark(self, path: Path, *rest: str | int) -> Mark:
        return nearest_mark(self.marks, (*path, *rest))

    def locate(self, path: Path) -> Mark:
        """Find where a value of the model was written: an edge to several nodes is one entry of the file."""
        match path:
            case ("slots", str(slot), "edges", int(index), *rest) if index < len(self.edges.get(slot, ())):
                return self.mark(self.edges[slot][index].path, *(_WRITTEN.get(key, key) for key in rest))
            case ("slots", str(slot), "nodes", int(index), *rest) if index < len(self.parts.get(slot, ())):
                return self.mark(self.parts[slot][index].path, *rest)
            case _:
                return self.mark(path)


def build_contract(tree: Tree, findings: Findings) -> ContractDraft | None:
    """Build a contract; None if its type or its states cannot be read."""
    taker = Taker(findings, "CONTRACT")
    taken = taker.take(CONTRACT, tree, ())
    if isinstance(taken, Misfit) or isinstance(taken.get("type"), Misfit):
        return None
    parts: dict[str, tuple[Part, ...]] = {}
    initial: tuple[Path, ...] = ()
    broken: set[str] = set()
    for key, model in _PARTS.items():
        items = taken.pop(key, [])
        if key == "states" and not isinstance(items, Misfit):
            initial = tuple(("states", index) for index, item in enumerate(items) if _pop(item, "initial") is True)
        parts[key] = tuple(_parts(key, items, model))
        if isinstance(items, Misfit) or len({part.path for part in parts[key]}) < len(items):
            broken.add(key)
    amendment = taken.pop("amendment", None)
    states = sorted(parts["states"], key=lambda part: part.path not in initial)
    head: dict[str, Any] = _fields(taken)
    lists: dict[str, Any] = {key: tuple(part.value for part in found) for key, found in parts.items()}
    lists["states"] = tuple(part.value for part in states)
    contract = ContractDefinition(
        **head,
        **lists,
        amendment=None if amendment is None or isinstance(amendment, Misfit) else Amendment(**_fields(amendment)),
    )
    return ContractDraft(contract=contract, parts=parts, initial=initial, broken=frozenset(broken), marks=taker.marks)


def build_patch(tree: Tree, findings: Findings) -> PatchDraft | None:
    """Build a patch; None if its contract cannot be read, or if it is too large to be looked into."""
    taker = Taker(findings, "PATCH")
    if _too_large(tree, findings):
        return None
    taken = taker.take(PATCH, tree, ())
    if isinstance(taken, Misfit) or isinstance(taken.get("contract"), Misfit):
        return None
    taken_slots = taken.pop("slots", MISFIT)
    written: dict[str, Any] = {} if isinstance(taken_slots, Misfit) else taken_slots
    slots: dict[str, SlotPatch] = {}
    parts: dict[str, tuple[Part, ...]] = {}
    edges: dict[str, tuple[Part, ...]] = {}
    for name, slot in written.items():
        if isinstance(slot, Misfit):
            continue
        nodes = tuple(_parts("nodes", slot.pop("nodes", []), PatchNode, ("slots", name)))
        edges[name] = tuple(_parts("edges", slot.pop("edges", []), PatchEdge, ("slots", name)))
        parts[name] = nodes
        slots[name] = SlotPatch(
            nodes=tuple(part.value for part in nodes), edges=tuple(part.value for part in edges[name]), **_fields(slot)
        )
    policies = tuple(_parts("policies", taken.pop("policies", []), PolicyRule))
    envelope = taken.pop("envelope")
    patch = PatchDefinition(
        **_fields(taken),
        envelope=1 if isinstance(envelope, Misfit) else envelope,
        slots=slots,
        policies=tuple(part.value for part in policies),
    )
    return PatchDraft(patch=patch, parts={**parts, "": policies}, edges=edges, marks=taker.marks)


def _too_large(tree: Tree, findings: Findings) -> bool:
    """Count the nodes and edges of all slots before anything of them is read."""
    for key, most in (("nodes", MOST_NODES), ("edges", MOST_EDGES)):
        count = sum(_length(slot, key) for slot in _slots(tree))
        if count > most:
            findings.add(TOO_LARGE, f"The patch has {count} {key}; it may have {most} in all its slots.", tree.mark)
            return True
    return False


def _slots(tree: Tree) -> Iterator[Tree]:
    slots = tree.entries.get("slots") if isinstance(tree, Mapping) else None
    if slots is not None and isinstance(slots.tree, Mapping):
        yield from (entry.tree for entry in slots.tree.entries.values())


def _length(slot: Tree, key: str) -> int:
    entry = slot.entries.get(key) if isinstance(slot, Mapping) else None
    return len(entry.tree.items) if entry is not None and isinstance(entry.tree, Sequence) else 0


def _pop(item: Any, key: str) -> Any:
    return None if isinstance(item, Misfit) else item.pop(key, None)


def _parts(key: str, items: Any, model: type[StructT], base: Path = ()) -> Iterator[Part]:
    """Make the entries that can be read; one that names several ends becomes one for each pair of them."""
    if isinstance(items, Misfit):
        return
    required = [field.encode_name for field in msgspec.structs.fields(model) if field.required]
    for index, item in enumerate(items):
        if isinstance(item, Misfit):
            continue
        for fields in _spread(item):
            found = _fields(fields)
            if model is PolicyRule and isinstance(found.get("on"), str):
                found["on"] = (found["on"],)
            if all(name in found for name in required):
                yield Part((*base, key, index), model(**found))


def _spread(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "from" not in item:
        yield item
        return
    for source in _names(item["from"]):
        for target in _names(item["to"]):
            yield {**item, "from": source, "to": target}


def _names(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _fields(taken: dict[str, Any]) -> dict[str, Any]:
    """Rename the ends of verbs, gates and edges to the fields of the model, and leave out refused values."""
    keys = _KEYS if "from" in taken else {}
    return {keys.get(key, key): _value(key, value) for key, value in taken.items() if value is not MISFIT}


def _value(key: str, value: Any) -> Any:
    if key == "approvers":
        return Approvers(**_fields(value))
    if isinstance(value, list):
        return tuple(item for item in cast(list[Any], value) if item is not MISFIT)
    return value
