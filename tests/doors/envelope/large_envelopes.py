"""Contracts and patches of a given size, for measuring."""

from __future__ import annotations

from holdfast.doors.envelope.model import (
    Approvers,
    ContractDefinition,
    DataField,
    Gate,
    PatchDefinition,
    PatchEdge,
    PatchNode,
    Slot,
    SlotPatch,
    State,
    Verb,
)

ONE_SLOT = ContractDefinition(
    type="invoice",
    fields=(DataField(name="total", type="money"),),
    states=(State(name="draft"), State(name="sent", window="amend_only"), State(name="done", ends=True)),
    verbs=(Verb(name="send", source="draft", target="sent"),),
    gates=(Gate(name="approve", source="sent", target="done"), Gate(name="reject", source="sent", target="draft")),
    slots=(Slot(name="review", entry="sent", exit="approve"),),
)


def long_patch(nodes: int) -> PatchDefinition:
    """One after the other: a condition, then a split with two approvals and their join."""
    steps: list[PatchNode] = []
    edges: list[PatchEdge] = []
    before = "in"
    for number in range(nodes // 5):
        choice, split, join = f"choice{number}", f"split{number}", f"join{number}"
        steps += [PatchNode(id=choice, kind="condition"), PatchNode(id=split, kind="split")]
        edges += [PatchEdge(source=before, target=choice), PatchEdge(source=choice, target=split, priority=1)]
        edges.append(PatchEdge(source=choice, target="out", when=f"entity.total > {number}"))
        for side in ("left", "right"):
            asked = f"{side}{number}"
            steps.append(PatchNode(id=asked, kind="approval", approvers=Approvers(role="finance")))
            edges.append(PatchEdge(source=split, target=asked))
            edges.append(PatchEdge(source=asked, target=join, on="approved"))
        steps.append(PatchNode(id=join, kind="join", mode="all"))
        before = join
    edges.append(PatchEdge(source=before, target="out"))
    return _patch(steps, edges)


def wide_patch(nodes: int) -> PatchDefinition:
    """One split with an approval in each of its branches."""
    asked = [PatchNode(id=f"ask{n}", kind="approval", approvers=Approvers(role="finance")) for n in range(nodes - 2)]
    steps = [PatchNode(id="split", kind="split"), PatchNode(id="join", kind="join", mode="all"), *asked]
    edges = [PatchEdge(source="in", target="split"), PatchEdge(source="join", target="out")]
    edges += [PatchEdge(source="split", target=step.id) for step in asked]
    edges += [PatchEdge(source=step.id, target="join", on="approved") for step in asked]
    return _patch(steps, edges)


def deep_patch(nodes: int) -> PatchDefinition:
    """Splits within splits: each has a script in one branch and the next split in the other."""
    depth = nodes // 3
    steps: list[PatchNode] = []
    edges = [PatchEdge(source="in", target="split0"), PatchEdge(source="join0", target="out")]
    for number in range(depth):
        split, script, join = f"split{number}", f"script{number}", f"join{number}"
        steps += [PatchNode(id=split, kind="split"), PatchNode(id=join, kind="join", mode="all")]
        steps.append(PatchNode(id=script, kind="script", sets={f"at{number}": "entity.total"}))
        edges += [PatchEdge(source=split, target=script), PatchEdge(source=script, target=join)]
        inner = number + 1
        if inner < depth:
            edges += [PatchEdge(source=split, target=f"split{inner}"), PatchEdge(source=f"join{inner}", target=join)]
        else:
            steps.append(PatchNode(id="last", kind="condition"))
            edges += [PatchEdge(source=split, target="last"), PatchEdge(source="last", target=join)]
    return _patch(steps, edges)


def _patch(steps: list[PatchNode], edges: list[PatchEdge]) -> PatchDefinition:
    return PatchDefinition(
        contract="invoice", envelope=1, slots={"review": SlotPatch(nodes=tuple(steps), edges=tuple(edges))}
    )


def large_contract(nodes: int) -> ContractDefinition:
    """A chain of states: each second one rests, the others are left by a gate with a slot before it."""
    states: list[State] = []
    verbs: list[Verb] = []
    gates: list[Gate] = []
    slots: list[Slot] = []
    for number in range(nodes // 4):
        rests, passed, onward = f"rests{number}", f"passed{number}", f"rests{number + 1}"
        states += [State(name=rests), State(name=passed, window="amend_only")]
        verbs += [Verb(name="send", source=rests, target=passed), Verb(name="stop", source=passed, target=rests)]
        gates += [Gate(name=f"accept{number}", source=passed, target=onward)]
        gates += [Gate(name=f"refuse{number}", source=passed, target=rests)]
        slots.append(Slot(name=f"slot{number}", entry=passed, exit=f"accept{number}"))
    states.append(State(name=f"rests{nodes // 4}", ends=True))
    return ContractDefinition(
        type="order", states=tuple(states), verbs=tuple(verbs), gates=tuple(gates), slots=tuple(slots)
    )
