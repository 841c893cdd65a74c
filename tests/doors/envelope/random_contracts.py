"""Random sound contracts, and random patches that can be read: the same seed gives the same ones everywhere."""

from __future__ import annotations

from random import Random
from typing import Any

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
from holdfast.doors.envelope.reading.format import FIELD_TYPES, NODE_KINDS, RUN_AS
from holdfast.graph.windows import WINDOWS

TEXTS = (
    *("plain", "no", "on", "true", "null", "~", "1e5", "0x1f", "12:30", "2026-01-31", "a: b", "# no comment", "- a"),
    *("'quoted'", '"double"', "back\\slash", "Ärger über Geld €", "emoji 😀", "{a, b}", "[x]", "&a *b !c", "%d", "@x"),
    *("a " * 90, "x" * 150, "?", "|", ">", "end:", " lead", "trail ", "=", "<<", ".inf", "0o17", "1_000", "5.", "-"),
)
PROSE = (*TEXTS, "two\nlines", "tab\there", "\n\n  indented\n", "trailing newline\n")
CONDITIONS = (
    "entity.f0 == null",
    "entity.f0 != null && actor.id == 'x: y'",
    "context.a in [1, 2.5, 'c']",
    'org.name == "# \\" {"',
    "!(now == null)",
    "true",
)


class Dice:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, values: Any) -> Any:
        return self.random.choice(list(values))

    def maybe(self, values: Any) -> Any:
        return self.one(values) if self.random.random() < 0.4 else None

    def flag(self) -> bool:
        return self.random.random() < 0.3

    def some(self, values: Any) -> tuple[Any, ...]:
        return tuple(value for value in values if self.random.random() < 0.4)

    def number(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def seconds(self) -> float:
        return self.one([0.5, 1.0, 90.0, 3_600.0, 86_400.0, 129_600.0, 0.000001, 12_345.678, 604_800.0, 31_536_000.0])


def random_contract(seed: int) -> ContractDefinition:
    dice = Dice(seed)
    count = dice.number(1, 7)
    names = [f"s{index}" for index in range(count)]
    fields = tuple(
        DataField(
            name=f"f{index}", type=dice.one(FIELD_TYPES), material=not dice.flag(), indexed=dice.flag(),
            about=dice.maybe(PROSE),
        )
        for index in range(dice.number(1, 5))
    )  # fmt: skip
    verbs: list[Verb] = []
    gates: list[Gate] = []
    slots: list[Slot] = []
    for index, name in enumerate(names[:-1]):
        following = names[index + 1]
        if dice.flag():
            gates += _gates(dice, index, name, following, names)
            slots += _slots(dice, index, name, gates)
        else:
            verbs.append(_verb(dice, f"v{index}", name, following))
            if dice.flag():
                slots.append(Slot(name=f"before{index}", entry=name, exit=f"v{index}", window=dice.maybe(WINDOWS)))
        if dice.flag():
            verbs.append(_verb(dice, f"back{index}", name, dice.one(names)))
    states = tuple(
        State(name=name, window=dice.one(WINDOWS), ends=name == names[-1], about=dice.maybe(PROSE)) for name in names
    )
    stable = any(slot.stable for slot in slots)
    calls = [verb.name for verb in verbs] + ["post", "create", "update", "amend"]
    actions = (
        Action(
            name="post", sets=dice.some(field.name for field in fields), run_as=dice.one(RUN_AS),
            capability=dice.maybe(TEXTS), about=dice.maybe(PROSE),
        ),
    )  # fmt: skip
    return ContractDefinition(
        type=f"t{seed}",
        version=dice.number(1, 9),
        fields=fields,
        states=states,
        verbs=tuple(verbs),
        gates=tuple(gates),
        actions=actions,
        policies=tuple(
            PolicyRule(name=f"p{index}", on=dice.some(dict.fromkeys(calls)), capability=dice.maybe(TEXTS), when="true")
            for index in range(dice.number(0, 2))
        ),
        slots=tuple(slots),
        amendment=Amendment(states=(names[-1],), drift=names[0] if stable else None) if dice.flag() else None,
        about=dice.maybe(PROSE),
    )


def _verb(dice: Dice, name: str, source: str, target: str) -> Verb:
    return Verb(
        name=name, source=source, target=target, capability=dice.maybe(TEXTS), when=dice.maybe(CONDITIONS),
        about=dice.maybe(PROSE),
    )  # fmt: skip


def _gates(dice: Dice, index: int, source: str, target: str, names: list[str]) -> list[Gate]:
    others = [Gate(name=f"no{index}", source=source, target=dice.one(names))] if dice.flag() else []
    demanded = dice.number(0, 3) if others else 0  # who asks for approvals says where a rejection leads
    about = dice.maybe(PROSE)
    return [Gate(name=f"g{index}", source=source, target=target, approvals=demanded, about=about), *others]


def _slots(dice: Dice, index: int, source: str, gates: list[Gate]) -> list[Slot]:
    has_other = any(gate.name == f"no{index}" for gate in gates)
    before = Slot(
        name=f"at{index}", entry=source, exit=f"g{index}", rejected=f"no{index}" if has_other and dice.flag() else None,
        window=dice.maybe(WINDOWS), stable=dice.flag(),
    )  # fmt: skip
    after = Slot(name=f"after{index}", entry=f"g{index}", exit=f"s{index + 1}")
    return [before, after] if dice.flag() else [before]


def random_patch(seed: int) -> PatchDefinition:
    dice = Dice(seed)
    slots = {f"slot{index}": _fill(dice) for index in range(dice.number(0, 3))}
    return PatchDefinition(
        contract=f"t{seed}",
        envelope=dice.number(1, 9),
        version=dice.number(1, 5),
        slots=slots,
        policies=tuple(
            PolicyRule(name=f"p{index}", on=dice.some(["a", "b"]), when=dice.one(CONDITIONS))
            for index in range(dice.number(0, 2))
        ),
        about=dice.maybe(PROSE),
    )


def _fill(dice: Dice) -> SlotPatch:
    nodes = tuple(_node(dice, f"n{index}", dice.one(NODE_KINDS)) for index in range(dice.number(0, 9)))
    ends = ["in", "out", "rejected", *(node.id for node in nodes)]
    edges = tuple(
        PatchEdge(
            source=dice.one(ends), target=dice.one(ends), on=dice.one(["completed", "approved", "timeout", "x.y:z"]),
            when=dice.maybe(CONDITIONS), priority=dice.number(-2, 2), label=dice.maybe(TEXTS),
        )
        for _ in range(dice.number(0, 9))
    )  # fmt: skip
    return SlotPatch(
        nodes=nodes, edges=edges, window=dice.maybe(WINDOWS), entry_mode=dice.maybe(["serial", "branch"]),
        exit_mode=dice.maybe(["single", "join"]),
    )  # fmt: skip


def _node(dice: Dice, id: str, kind: str) -> PatchNode:
    payload = {name: dice.one(CONDITIONS) for name in dice.some(["a", "b c", "no", "5"])}
    own: dict[str, Any] = {
        "condition": {},
        "split": {},
        "join": {"mode": dice.one(["all", "any"])},
        "script": {"sets": {"a": dice.one(CONDITIONS), **payload}},
        "rule": {"table": "limits", "table_version": dice.maybe([1, 7])},
        "action": {"action": "post", "payload": payload, "run_as": dice.maybe(RUN_AS)},
        "approval": {
            "approvers": Approvers(**{dice.one(["user", "role"]): dice.one(TEXTS)}),
            "form": dice.maybe([{"type": "object", "properties": {name: {"title": name} for name in TEXTS}}, {}]),
            "due": dice.seconds(),
        },
        "wait_timer": {"delay": dice.seconds()},
        "wait_event": {"event": "a.b", "key": dice.maybe(CONDITIONS), "deadline": dice.seconds()},
        "webhook_out": {
            "url": "https://example.org/?a=b#c", "headers": {"X-A": dice.one(TEXTS)}, "secret": dice.maybe(TEXTS),
            "payload": payload, "awaits": dice.flag(),
        },
        "notification": {
            "channel": "mail", "to": dice.maybe(CONDITIONS), "subject": dice.maybe(TEXTS), "text": dice.maybe(PROSE),
        },
        "sub_flow": {"flow": dice.one(TEXTS), "flow_version": dice.maybe([3]), "payload": payload},
        "policy_gate": {"capability": dice.one(TEXTS), "when": dice.maybe(CONDITIONS)},
    }[kind]  # fmt: skip
    return PatchNode(
        id=id, kind=kind, name=dice.maybe(TEXTS), about=dice.maybe(PROSE), window=dice.maybe(WINDOWS), **own
    )
