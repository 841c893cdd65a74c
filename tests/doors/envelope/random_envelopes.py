"""Random contracts that are sound, random patches for them, and ways of breaking a patch.

`random_contract(Random(7))` is the same wherever it runs, and so are `random_patch` and `broken`. A patch that was not
broken is accepted, but for approvals: `filled=True` fills every slot and brings those that its gate demands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, TypeVar

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
    Window,
)
from holdfast.doors.envelope.slots import ContractIndex, resolve_slots
from holdfast.doors.envelope.tables import PinnedTable, Tables
from holdfast.graph.envelope import SlotPlace
from holdfast.graph.windows import WINDOWS

TABLES: Final = Tables(
    [
        PinnedTable(name="limits", version=1, hash="1" * 64, table={"rows": [], "hit": "first"}),
        PinnedTable(name="limits", version=2, hash="2" * 64, table={"rows": [[1, 2]], "hit": "first"}),
    ]
)
FIELDS: Final = (
    DataField(name="total", type="money"),
    DataField(name="vendor", type="string"),
    DataField(name="urgent", type="boolean"),
    DataField(name="due", type="time"),
    DataField(name="lines", type="list"),
    DataField(name="note", type="string", material=False),
)
ACTIONS: Final = (
    Action(name="post", capability="ledger:post", run_as="system"),
    Action(name="mark", sets=("note",)),
)
CONDITIONS: Final = (
    "entity.total > 1000",
    "entity.urgent == true && actor.level >= 2",
    "entity.vendor in org.trusted",
    "context.score <= 10 || entity.due < now",
)
EVENTS: Final = ("paid", "delivered")


# --- contracts --------------------------------------------------------------------------------------------------------


def random_contract(random: Random, *, states: int = 5) -> ContractDefinition:
    """Make a sound contract: every state leads to the next one, and the last one ends."""
    names = [f"s{number}" for number in range(random.randint(2, states))]
    made = [State(name=name, window=random.choice(WINDOWS)) for name in names[:-1]]
    made.append(State(name=names[-1], window="locked", ends=True))
    gated = {name for name in names[1:-1] if random.random() < 0.6}
    writer = _Contract(random, names, [name for name in names[:-1] if name not in gated])
    for number, name in enumerate(names[:-1]):
        if name in gated:
            writer.gated(number, name)
        else:
            writer.resting(number, name)
    drift = random.choice([None, random.choice(writer.resting_states)])
    amended = tuple(name for name in names if random.random() < 0.3)
    return ContractDefinition(
        type=random.choice(["invoice", "order"]),
        version=random.randint(1, 3),
        fields=FIELDS,
        states=tuple(made),
        verbs=tuple(writer.verbs),
        gates=tuple(writer.gates),
        actions=ACTIONS,
        policies=(PolicyRule(name="four_eyes", on=("post",), when="entity.total < 5000"),),
        slots=tuple(writer.slots),
        amendment=Amendment(states=amended, drift=drift) if amended or drift else None,
    )


class _Contract:
    def __init__(self, random: Random, names: list[str], resting: list[str]) -> None:
        self.random = random
        self.names = names
        self.resting_states = resting
        self.verbs: list[Verb] = []
        self.gates: list[Gate] = []
        self.slots: list[Slot] = []

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def slot(self, name: str, entry: str, exit: str, **fields: Any) -> None:
        self.slots.append(Slot(name=name, entry=entry, exit=exit, stable=self.chance(0.4), **fields))

    def resting(self, number: int, name: str) -> None:
        onward = self.names[number + 1]
        self.verbs.append(Verb(name=f"go{number}", source=name, target=onward, capability="docs:go"))
        if self.chance(0.5):
            self.verbs.append(Verb(name="jump", source=name, target=self.random.choice(self.names)))
        if self.chance(0.4):
            self.slot(f"after_go{number}", name, f"go{number}")

    def gated(self, number: int, name: str) -> None:
        gate, has_slot, rejects = f"pass{number}", self.chance(0.8), self.chance(0.7)
        # Whoever may refuse needs a way to do so: without one every approval could be passed over.
        approvals = self.random.choice([0, 0, 1, 2]) if has_slot and rejects else 0
        target = self.names[number + 1]
        self.gates.append(Gate(name=gate, source=name, target=target, approvals=approvals))
        if has_slot:
            self.slot(f"before_{gate}", name, gate)
        if has_slot and rejects:
            back = self.random.choice(self.resting_states)
            self.gates.append(Gate(name=f"reject{number}", source=name, target=back))
        if self.chance(0.3):
            self.slot(f"after_{gate}", gate, target)
        if self.chance(0.6):
            self.verbs.append(Verb(name="withdraw", source=name, target=self.random.choice(self.resting_states)))


# --- patches ----------------------------------------------------------------------------------------------------------


def random_patch(
    random: Random, contract: ContractDefinition, *, size: int = 8, filled: bool = False
) -> PatchDefinition:
    """Make a patch that is sound, but perhaps lacks approvals; with `filled` it lacks none."""
    slots: dict[str, SlotPatch] = {}
    for name, place in resolve_slots(ContractIndex(contract)).items():
        if filled or random.random() < 0.8:
            slots[name] = _Steps(random, contract, place, size).fill(demanded=filled or random.random() < 0.8)
    return PatchDefinition(
        contract=contract.type,
        envelope=contract.version,
        version=random.randint(1, 9),
        slots=slots,
        policies=(PolicyRule(name="ours", capability="docs:ours"),) if random.random() < 0.3 else (),
    )


class _Loose:
    """An edge whose target is not known yet."""

    def __init__(self, source: str, on: str = "completed", when: str | None = None, priority: int = 0) -> None:
        self.source, self.on, self.when, self.priority = source, on, when, priority


class _Steps:
    """The steps of one slot, written block by block; edges that lead on are loose until the next block begins."""

    def __init__(self, random: Random, contract: ContractDefinition, place: SlotPlace, size: int) -> None:
        self.random = random
        self.contract = contract
        self.place = place
        self.left = random.randint(1, size)
        self.nodes: list[PatchNode] = []
        self.edges: list[PatchEdge] = []
        windows: list[Window | None] = [None, place.window, "locked"]
        self.window: Window | None = random.choice(windows)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def fill(self, *, demanded: bool) -> SlotPatch:
        loose = [_Loose("in")]
        for _ in range(self.place.approvals if demanded else 0):
            loose = self.approval(loose)
        loose = self.path(loose, 0)
        self.tie(loose, "out")
        return SlotPatch(
            nodes=tuple(self.nodes),
            edges=tuple(self.edges),
            window=self.window,
        )

    def tie(self, loose: list[_Loose], target: str) -> None:
        for edge in loose:
            self.edges.append(
                PatchEdge(source=edge.source, target=target, on=edge.on, when=edge.when, priority=edge.priority)
            )

    def node(self, kind: str, loose: list[_Loose], **fields: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        windows: list[Window | None] = [None, None, "locked"]
        window = self.random.choice(windows)
        self.nodes.append(PatchNode(id=name, kind=kind, window=window, **fields))
        self.tie(loose, name)
        self.left -= 1
        return name

    def path(self, loose: list[_Loose], depth: int) -> list[_Loose]:
        for _ in range(self.random.randint(1, 3)):
            if self.left <= 0:
                break
            blocks: list[Callable[[list[_Loose]], list[_Loose]]] = [self.step, self.step, self.approval]
            if depth < 3 and self.left > 2:
                blocks += [partial(self.choice, depth=depth), partial(self.split, depth=depth)]
            loose = self.random.choice(blocks)(loose)
        return loose

    def step(self, loose: list[_Loose]) -> list[_Loose]:
        kind, fields = self.random.choice(_STEPS)
        name = self.node(kind, loose, **fields)
        ways = [_Loose(name)]
        if fields.get("deadline") is not None:
            ways.append(_Loose(name, "timeout"))
        if kind in ("action", "rule", "policy_gate", "sub_flow") and self.chance(0.3):
            ways.append(_Loose(name, "error"))
        return ways

    def approval(self, loose: list[_Loose]) -> list[_Loose]:
        asked = self.random.choice(
            [Approvers(role="finance"), Approvers(user="ben"), Approvers(expression="entity.vendor")]
        )
        due = self.random.choice([None, 3600.0])
        name = self.node("approval", loose, approvers=asked, due=due)
        has_port = self.place.rejected is not None
        if not has_port or self.chance(0.3):
            self.edges.append(PatchEdge(source=name, target="rejected" if has_port else "out", on="rejected"))
        if due is not None and has_port and self.chance(0.5):
            self.edges.append(PatchEdge(source=name, target="rejected", on="timeout"))
        return [_Loose(name, "approved")]

    def choice(self, loose: list[_Loose], depth: int) -> list[_Loose]:
        name = self.node("condition", loose)
        ends: list[_Loose] = []
        for number in range(self.random.randint(1, 2)):
            when = self.random.choice(CONDITIONS)
            ends += self.path([_Loose(name, when=when, priority=number)], depth + 1)
        port = "rejected" if self.place.rejected is not None else "out"
        if self.chance(0.2):
            self.tie([_Loose(name, priority=5)], port)
            return ends
        return [*ends, _Loose(name, priority=5)]

    def split(self, loose: list[_Loose], depth: int) -> list[_Loose]:
        name = self.node("split", loose)
        ends: list[_Loose] = []
        for number in range(self.random.randint(2, 3)):
            when = self.random.choice(CONDITIONS) if number and self.chance(0.3) else None
            self.left += 1
            ends += self.path([_Loose(name, when=when, priority=number)], depth + 1)
        return [_Loose(self.node("join", ends, mode=self.random.choice(["all", "any"])))]


_STEPS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("script", {"sets": {"score": "entity.total", "late": "entity.due < now"}}),
    ("rule", {"table": "limits"}),
    ("rule", {"table": "limits", "table_version": 1}),
    ("action", {"action": "post", "payload": {"total": "entity.total"}}),
    ("action", {"action": "mark", "payload": {"note": "context.note"}, "run_as": "actor"}),
    ("policy_gate", {"capability": "docs:special"}),
    ("wait_timer", {"delay": 60.0}),
    ("wait_timer", {"until": "entity.due"}),
    ("wait_event", {"event": "paid", "key": "entity.vendor"}),
    ("wait_event", {"event": "delivered", "deadline": 86400.0}),
    ("webhook_out", {"url": "https://ledger.example/hook", "payload": {"total": "entity.total"}}),
    ("webhook_out", {"url": "https://ledger.example/hook", "awaits": True}),
    ("notification", {"channel": "mail", "to": "entity.vendor", "subject": "News", "text": "Look."}),
    ("sub_flow", {"flow": "archive", "payload": {"vendor": "entity.vendor"}}),
)


# --- breaking them ----------------------------------------------------------------------------------------------------


def broken(random: Random, patch: PatchDefinition) -> PatchDefinition:
    """Change a patch in one to three ways, most of which are refused."""
    for _ in range(random.randint(1, 3)):
        patch = random.choice(_BREAKS)(random, patch)
    return patch


def _some_slot(random: Random, patch: PatchDefinition) -> str | None:
    names = [name for name, steps in patch.slots.items() if steps.nodes and steps.edges]
    return random.choice(names) if names else None


def _with(patch: PatchDefinition, slot: str, **changes: Any) -> PatchDefinition:
    changed = msgspec.structs.replace(patch.slots[slot], **changes)
    return msgspec.structs.replace(patch, slots={**patch.slots, slot: changed})


def _edge_changed(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    edges = list(patch.slots[slot].edges)
    index = random.randrange(len(edges))
    anywhere = [node.id for steps in patch.slots.values() for node in steps.nodes]
    change: dict[str, Any] = random.choice(
        [
            {"target": "sys:gate:pass1"},
            {"source": "sys:state:s0"},
            {"target": f"usr:{slot}:{random.choice(anywhere)}"},
            {"target": random.choice(anywhere)},
            {"source": random.choice(anywhere)},
            {"target": random.choice(["in", "out", "rejected"])},
            {"source": random.choice(["in", "out", "rejected"])},
            {"on": random.choice(["completed", "approved", "rejected", "error", "timeout", "sys:never", "paid"])},
            {"when": random.choice([*CONDITIONS, "entity.nothing > 1", "entity.vendor > 3", "input.x == 1", "1 +"])},
        ]
    )
    edges[index] = msgspec.structs.replace(edges[index], **change)
    return _with(patch, slot, edges=tuple(edges))


def _edge_dropped(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    edges = list(patch.slots[slot].edges)
    del edges[random.randrange(len(edges))]
    return _with(patch, slot, edges=tuple(edges))


def _edge_added(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    names = [node.id for node in patch.slots[slot].nodes]
    extra = PatchEdge(
        source=random.choice([*names, "in"]),
        target=random.choice([*names, "out", "rejected"]),
        on=random.choice(["completed", "approved", "rejected", "error"]),
        priority=random.randint(0, 9),
    )
    return _with(patch, slot, edges=(*patch.slots[slot].edges, extra))


def _node_changed(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    nodes = list(patch.slots[slot].nodes)
    index = random.randrange(len(nodes))
    change: dict[str, Any] = random.choice(
        [
            {"id": "sys:gate:pass1"},
            {"id": "usr:other:step"},
            {"id": random.choice(["in", "", "a b", "x" * 99, nodes[0].id])},
            {"kind": random.choice(["task", "state", "terminal", "end", "compensation", "save_point", "mystery"])},
            {"kind": random.choice(["approval", "script", "join", "split", "wait_timer"])},
            {"window": random.choice(WINDOWS)},
            {"action": "unknown"},
            {"payload": {"nothing": "entity.nothing"}},
            {"run_as": "service_account"},
            {"table": "unknown"},
            {"due": -1.0},
            {"mode": random.choice(["all", "any", "most"])},
            {"form": {"type": 5}},
            {"approvers": random.choice([None, Approvers(), Approvers(user="a", role="b")])},
        ]
    )
    nodes[index] = msgspec.structs.replace(nodes[index], **change)
    return _with(patch, slot, nodes=tuple(nodes))


def _node_added(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    return _with(patch, slot, nodes=(*patch.slots[slot].nodes, PatchNode(id="lonely", kind="condition")))


def _node_dropped(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    nodes = list(patch.slots[slot].nodes)
    del nodes[random.randrange(len(nodes))]
    return _with(patch, slot, nodes=tuple(nodes))


def _slot_changed(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slot = _some_slot(random, patch)
    if slot is None:
        return patch
    change: dict[str, Any] = random.choice(
        [
            {"window": random.choice(WINDOWS)},
            {"entry_mode": random.choice(["serial", "branch", "odd"])},
            {"exit_mode": random.choice(["single", "join"])},
            {"nodes": (), "edges": ()},
            {"edges": ()},
        ]
    )
    return _with(patch, slot, **change)


def _whole_changed(random: Random, patch: PatchDefinition) -> PatchDefinition:
    change: dict[str, Any] = random.choice(
        [
            {"contract": "nothing"},
            {"envelope": 99},
            {"slots": {**patch.slots, "unknown": SlotPatch(edges=(PatchEdge(source="in", target="out"),))}},
            {"policies": (PolicyRule(name="four_eyes", capability="x"),)},
            {"policies": (PolicyRule(name="odd", on=("nothing",)),)},
        ]
    )
    return msgspec.structs.replace(patch, **change)


_BREAKS: Final = (
    *(_edge_changed, _edge_changed, _edge_dropped, _edge_added, _edge_added),
    *(_node_changed, _node_changed, _node_added, _node_dropped, _slot_changed, _whole_changed),
)


# --- shuffling them ---------------------------------------------------------------------------------------------------

ItemT = TypeVar("ItemT")


def _mixed(random: Random, items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    return tuple(random.sample(items, len(items)))


def shuffled_contract(random: Random, contract: ContractDefinition) -> ContractDefinition:
    """Write the same contract in another order. The first state stays: documents begin there."""
    return msgspec.structs.replace(
        contract,
        fields=_mixed(random, contract.fields),
        states=(contract.states[0], *_mixed(random, contract.states[1:])),
        verbs=_mixed(random, contract.verbs),
        gates=_mixed(random, contract.gates),
        actions=_mixed(random, contract.actions),
        policies=_mixed(random, contract.policies),
        slots=_mixed(random, contract.slots),
    )


def shuffled_patch(random: Random, patch: PatchDefinition) -> PatchDefinition:
    slots = {
        name: msgspec.structs.replace(
            patch.slots[name],
            nodes=_mixed(random, patch.slots[name].nodes),
            edges=_mixed(random, patch.slots[name].edges),
        )
        for name in _mixed(random, tuple(patch.slots))
    }
    return msgspec.structs.replace(patch, slots=slots, policies=_mixed(random, patch.policies))
