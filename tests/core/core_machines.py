"""Machines in memory: a graph with rules, and an instance of it. Decisions are applied and replayed from their rows."""

from __future__ import annotations

from typing import Any

import msgspec
from core_run import new_instance, projection
from core_table import StepTable

from holdfast.core.decide import decide
from holdfast.core.machine.triggers import Answer, NotApplied
from holdfast.core.model.decision import Decision, Fact, Facts, Notice
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import SYSTEM, Actor, GateDone, Signal, TimerDue, Triggered
from holdfast.core.model.state import ROOT, Wait
from holdfast.core.replay.replay import replay
from holdfast.graph.compile import compile_graph
from holdfast.graph.machine import MachineConfig, Rule, StateConfig, StateTimeout
from holdfast.graph.model import Edge, Graph, Node, Policy

CONTEXT = Policy(data="context", on_error="suspend", early=False)


def machine(
    states: dict[str, StateConfig | None],
    ways: list[tuple[str, str, str] | Edge],
    *,
    ends: tuple[str, ...] = (),
    codes: dict[str, int] | None = None,
) -> Program:
    """A machine whose first state is the first one named."""
    nodes = tuple(
        Node(id=name, kind="terminal" if name in ends else "state", config=msgspec.to_builtins(config or StateConfig()))
        for name, config in states.items()
    )
    edges = tuple(
        way if isinstance(way, Edge) else Edge(id="-".join(way), source=way[0], on=way[1], target=way[2])
        for way in ways
    )
    config = MachineConfig(environment="prod", definition="order", blueprint=3, codes=codes or {})
    graph = Graph(
        name="prod.order", kind="machine", entry=next(iter(states)), nodes=nodes, edges=edges, policy=CONTEXT,
        config=msgspec.to_builtins(config), variables={"input.ok": "boolean"},
    )  # fmt: skip
    return link(compile_graph(graph))


def ruled(**rules: Rule) -> StateConfig:
    return StateConfig(rules=rules)


def timed(after: float, event: str | None, mode: Any = "once", **rules: Rule) -> StateConfig:
    return StateConfig(rules=rules, timeout=StateTimeout(after=after, event=event, mode=mode))


class MachineRun:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.instance = new_instance(program)
        self.table = StepTable()
        self.now = 800_000_000_000_000
        self.told: list[Fact] = []
        self.notices: list[Notice] = []
        self.timers: dict[bytes, tuple[int, TimerDue]] = {}

    def decide(self, signal: Signal, actor: Actor = SYSTEM) -> Decision:
        self.now += 1_000_000
        facts = Facts(self.now, actor)
        decision = decide(self.program, self.instance, signal, facts)
        assert decision == decide(self.program, self.instance, signal, facts), "the same arguments, the same decision"
        self.table.apply(decision, self.now)
        for timer in decision.timers:
            self.timers[timer.id] = (timer.due, TimerDue(timer.path, timer.wait, timer.purpose))
        for timer in decision.timers_ended:
            self.timers.pop(timer, None)
        self.instance = decision.instance
        self.told += decision.facts
        self.notices += decision.notices
        rebuilt = replay(self.program, self.table.rows.values(), instance=new_instance(self.program))
        assert projection(rebuilt) == projection(self.instance)
        return decision

    def send(self, event: str | int, payload: Any = None, *, by: Actor = SYSTEM, expected: int | None = None) -> Answer:
        raw = None if payload is None else msgspec.json.encode(payload)
        try:
            answer = self.decide(Triggered(event, raw, expected), by).answer
        except NotApplied as told:
            answer = told.answer
        assert answer is not None
        return msgspec.json.decode(answer, type=Answer)

    def settle(self, hook: str, verdict: str = "success") -> MachineRun:
        """The consumers of an open gate have answered."""
        [gate] = [wait.ref for wait in self.gates if wait.event == hook]
        assert gate is not None
        self.decide(GateDone(gate, verdict))
        return self

    def fire(self, purpose: str) -> MachineRun:
        """The moment of a timer has come."""
        [id] = [id for id, (_, timer) in self.timers.items() if timer.purpose == purpose]
        due, timer = self.timers.pop(id)
        self.now = max(self.now, due)
        self.decide(timer)
        return self

    @property
    def state(self) -> str | None:
        token = self.instance.state.tokens.get(ROOT)
        return None if token is None else token.node

    @property
    def waits(self) -> tuple[Wait, ...]:
        token = self.instance.state.tokens.get(ROOT)
        return () if token is None else token.waits

    @property
    def gates(self) -> list[Wait]:
        return [wait for wait in self.waits if wait.kind == "gate"]

    def facts(self) -> list[tuple[str, str | None]]:
        """What consumers were told since the last look."""
        told, self.told = self.told, []
        return [(fact.kind, fact.code or (body(fact)["to"] if fact.kind == "transition" else None)) for fact in told]


def body(fact: Fact) -> dict[str, Any]:
    return msgspec.json.decode(fact.body)
