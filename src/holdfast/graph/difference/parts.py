"""A graph of a document, read as parts with fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import msgspec

from holdfast.errors import DefinitionError
from holdfast.graph.compiled import Compiled
from holdfast.graph.difference.model import Filling, Noun, Side
from holdfast.graph.envelope import ENVELOPE, SYSTEM, EffectiveConfig, EnvelopeConfig, region_id
from holdfast.graph.model import Edge, dump_struct
from holdfast.graph.rules import rules_of
from holdfast.graph.weaving import parts_of, unweave
from holdfast.graph.windows import strictest

PATCH: Final = "patch"
POLICIES: Final = "policies"
TABLES: Final = "tables"
_IDENTITY: Final = frozenset({"id", "source", "target", "on", "slot", "provenance"})


class Key(msgspec.Struct, frozen=True, order=True):
    """The identity of a part, and where it is listed. Keys are in the order of their places."""

    group: tuple[str, str]  # ("envelope", ""), ("slot", name), ("policies", "") or ("tables", "")
    rank: int
    noun: Noun
    id: str
    source: str = ""  # of an edge
    target: str = ""
    on: str = ""


class Part(msgspec.Struct, frozen=True):
    provenance: str
    fields: dict[str, Any]
    kind: str | None = None  # of a node


class Document(msgspec.Struct, frozen=True):
    """The graph of a document with what it was made of."""

    graph: Compiled
    config: EffectiveConfig

    @property
    def side(self) -> Side:
        patch = self.config.patch
        return Side(
            type=self.config.envelope.type,
            envelope=self.config.envelope.version,
            patch=None if patch is None else patch.version,
            hash=self.graph.hash,
        )

    def filling(self, slot: str) -> Filling:
        if slot not in self.config.envelope.slots:
            return "absent"
        return "filled" if slot in self.config.filled else "empty"


_RANKS: Final[tuple[Noun, ...]] = (
    *("graph", "field", "verb", "action", "policy", "amendment"),
    *("slot", "region", "node", "edge", "table"),
)
Owners = Mapping[str, str]  # direct edge → the slot that lies on it


def read_document(graph: Compiled) -> Document:
    """Read what a graph was made of, or refuse a graph that is of no document."""
    try:
        if rules_of(graph.kind).proves_envelope:
            return Document(graph, msgspec.convert(graph.config, EffectiveConfig))
        return Document(graph, EffectiveConfig(envelope=msgspec.convert(graph.config, EnvelopeConfig)))
    except msgspec.ValidationError:
        raise DefinitionError(
            f"{graph.name!r} version {graph.version} is no graph of a document.",
            code="NOT_COMPARABLE",
            hint="Compare envelopes and effective graphs; they come from contracts and patches.",
        ) from None


def owners_of(*documents: Document) -> Owners:
    """Find the slots that direct edges belong to, in whichever of the documents a slot lies there."""
    found: dict[str, str] = {}
    for document in documents:
        for name, place in document.config.envelope.slots.items():
            for edge in (place.edge, place.rejecting):
                if edge is not None:
                    found[edge] = min(name, found.get(edge, name))
    return found


def read_parts(document: Document, owners: Owners) -> dict[Key, Part]:
    readers: tuple[Callable[[Document, Owners], Iterator[tuple[Key, Part]]], ...] = (
        *(_settings, _contract, _regions, _slots, _nodes, _edges),
        *(_policies, _tables),
    )
    return {key: part for read in readers for key, part in read(document, owners)}


# --- the envelope -----------------------------------------------------------------------------------------------------


def _settings(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    """Read the rules of the whole graph; the types of the document's fields are with the fields."""
    graph = document.graph
    variables = {name: type for name, type in graph.variables.items() if not name.startswith("entity.")}
    rules = {"entry": graph.entry, "policy": dump_struct(graph.policy, "policy"), "variables": variables}
    yield _key(None, "graph", document.config.envelope.type), Part(ENVELOPE, flat(rules))


def _contract(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    contract = document.config.envelope.contract
    for name, noun in _CONTRACT.items():
        for id, fields in _mapping(contract.get(name)).items():
            yield _key(None, noun, id), Part(ENVELOPE, flat(_mapping(fields)))
    for state, verbs in _mapping(contract.get("verbs")).items():
        for verb, fields in _mapping(verbs).items():
            yield _key(None, "verb", f"{state}.{verb}"), Part(ENVELOPE, flat(_mapping(fields)))
    if "amendment" in contract:
        yield _key(None, "amendment", "amendment"), Part(ENVELOPE, flat(_mapping(contract["amendment"])))
    for name in sorted(set(contract) - {*_CONTRACT, "verbs", "amendment"}):
        yield _key(None, "graph", name), Part(ENVELOPE, flat({"contract": contract[name]}))


_CONTRACT: Final[dict[str, Noun]] = {"fields": "field", "actions": "action", "policies": "policy"}


def _regions(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    """Read the regions of states as the envelope has them: a verb leads through a slot whether it is filled or not."""
    graph = document.graph
    woven = parts_of(graph.nodes.values(), graph.edges.values(), graph.regions.values())
    bare = unweave(woven, document.config.envelope, document.config.filled)
    for region in bare.regions.values():
        yield _key(None, "region", region.id), Part(ENVELOPE, _fields(region))


# --- slots ------------------------------------------------------------------------------------------------------------


def _slots(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    """Read the places of slots, each with the window in effect and the ones it comes from."""
    for name, place in document.config.envelope.slots.items():
        own = document.config.windows.get(name)
        region = document.graph.regions.get(region_id(name))
        window = strictest(place.window, own) if region is None else region.window
        fields = _fields(place) | {"window": window, "window.contract": place.window}
        yield _key(name, "slot", name), Part(ENVELOPE, fields if own is None else fields | {"window.patch": own})


def _nodes(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    for id, node in document.graph.nodes.items():
        provenance = ENVELOPE if node.slot is None or id.startswith(SYSTEM) else node.slot
        yield _key(node.slot, "node", id), Part(provenance, _fields(node), node.kind)


def _edges(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    for id, edge in document.graph.edges.items():
        key = _key(_slot_of(document, edge, owners), "edge", id)
        named = msgspec.structs.replace(key, source=edge.source, target=edge.target, on=edge.on)
        yield named, Part(edge.provenance, _fields(edge))


def _slot_of(document: Document, edge: Edge, owners: Owners) -> str | None:
    """Find the slot of an edge: it lies inside, leads in or out, or is the way past a slot that is empty."""
    nodes = document.graph.nodes
    inside = (nodes[end].slot for end in (edge.source, edge.target) if end in nodes)
    return next((slot for slot in inside if slot is not None), owners.get(edge.id))


# --- the patch --------------------------------------------------------------------------------------------------------


def _policies(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    for policy in document.config.patch.policies if document.config.patch is not None else []:
        fields = {name: value for name, value in policy.items() if name != "name"}
        yield _key(None, "policy", str(policy["name"]), POLICIES), Part(PATCH, flat(fields))


def _tables(document: Document, owners: Owners) -> Iterator[tuple[Key, Part]]:
    """Read the pinned tables: by name, or by name and version where a graph pins several versions of one."""
    tables = document.config.tables
    versions = Counter(pinned.rpartition("@")[0] for pinned in tables)
    for pinned, table in tables.items():
        name = pinned.rpartition("@")[0]
        content = {f"table.{key}": value for key, value in _mapping(table.get("table")).items()}
        rest = {key: value for key, value in table.items() if key != "table"}
        yield _key(None, "table", name if versions[name] == 1 else pinned, TABLES), Part(PATCH, rest | content)


# --- fields -----------------------------------------------------------------------------------------------------------


def flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Name each field, and each entry of one that is a mapping; deeper ones are compared as a whole."""
    return dict(_flat(data))


def _flat(data: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        entries = _mapping(value)
        if not entries:
            yield name, value
        for key, entry in entries.items():
            yield f"{name}.{key}", entry


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    data = dump_struct(value, "part")
    return flat({name: item for name, item in data.items() if name not in _IDENTITY and name != "name"})


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _key(slot: str | None, noun: Noun, id: str, group: str = ENVELOPE) -> Key:
    place = (group, "") if slot is None else ("slot", slot)
    return Key(group=place, rank=_RANKS.index(noun), noun=noun, id=id)


def in_group(keys: Iterable[Key], group: tuple[str, str]) -> list[Key]:
    return sorted(key for key in keys if key.group == group)
