"""The graph of a document, made by hand: draft, submitted with a slot for steps and two gates, active, cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from core_graphs import edge, start, terminal
from core_run import Run

from holdfast.core.documents.stance import Stance, stance
from holdfast.core.model.decision import Decision, TaskOpened
from holdfast.core.model.program import Program, link
from holdfast.core.model.signals import SYSTEM, Actor, Decided, EntityChanged, VerbCalled
from holdfast.graph.compile import compile_graph
from holdfast.graph.model import Edge, Graph, Node, Policy, Region

DRAFT, SUBMITTED, ACTIVE, CANCELLED = (f"sys:state:{name}" for name in ("draft", "submitted", "active", "cancelled"))
APPROVE, REJECT = "sys:gate:approve", "sys:gate:reject"
IN, OUT, REJECTED = (f"sys:slot:review:{port}" for port in ("in", "out", "rejected"))
SLOT = "slot:review"
POLICY = Policy(on_error="suspend", on_cancel="stop", data="context")
ANN, BEN = Actor("ann", ("invoice:submit", "invoice:cancel")), Actor("ben")


def usr(name: str) -> str:
    return name if name.startswith(("sys:", "usr:")) else f"usr:review:{name}"


def approval(name: str, **options: Any) -> Node:
    return Node(id=usr(name), kind="approval", slot="review", **options)


def gate(id: str) -> Node:
    return Node(id=id, kind="lifecycle_gate", handler="holdfast:gate")


def passed(id: str) -> Node:
    return Node(id=id, kind="slot")


def step(source: str, target: str, on: str = "completed", **options: Any) -> Edge:
    return edge(usr(source), usr(target), on, **options)


def asks(name: str, then: str = OUT) -> list[Edge]:
    """An approval's two ways out."""
    return [step(name, then, "approved"), step(name, REJECTED, "rejected")]


def document(
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    *,
    window: str = "editable",
    stable: bool = False,
    amendment: str | None = None,
    policy: Policy = POLICY,
    version: int = 1,
    kind: str = "effective",
    **guards: Any,
) -> Program:
    """A document whose slot `review` is filled with the nodes. The edges lead from `IN` to `OUT` and `REJECTED`."""
    verbs = {"withdraw": DRAFT, "cancel": CANCELLED}
    graph = Graph(
        name="document:invoice",
        kind=kind,
        version=version,
        entry="sys:start",
        nodes=(
            start("sys:start"), Node(id=DRAFT, kind="state"), passed(SUBMITTED), gate(APPROVE), gate(REJECT),
            passed(IN), passed(OUT), passed(REJECTED), passed(ACTIVE), passed(CANCELLED), terminal("sys:end"), *nodes,
        ),
        edges=(
            edge("sys:start", DRAFT), edge(DRAFT, SUBMITTED, "submit", guard="invoice:submit"),
            edge(DRAFT, CANCELLED, "cancel"), edge(SUBMITTED, IN), edge(IN, REJECTED, "never"), edge(OUT, APPROVE),
            edge(REJECTED, REJECT), edge(APPROVE, ACTIVE), edge(REJECT, DRAFT), edge(ACTIVE, "sys:end"),
            edge(CANCELLED, "sys:end"), *edges,
        ),
        regions=(
            Region(id=DRAFT, nodes=(DRAFT,), verbs={"submit": SUBMITTED, "cancel": CANCELLED}),
            Region(id=SUBMITTED, nodes=(SUBMITTED, APPROVE, REJECT), window="amend_only", verbs=verbs, **guards),
            Region(
                id=SLOT, nodes=(IN, OUT, REJECTED, *(node.id for node in nodes)), window=window, stable=stable,
                amendment=amendment, verbs=verbs, **guards,
            ),
            Region(id=ACTIVE, nodes=(ACTIVE,), window="locked"),
            Region(id=CANCELLED, nodes=(CANCELLED,), window="locked"),
        ),
        policy=policy,
    )  # fmt: skip
    program = link(compile_graph(graph))
    return msgspec.structs.replace(program, definition=b"%016d" % version, version=version, hash=f"hash {version}")


class Document(Run):
    """An instance of a document: verbs, edits, and decisions of people."""

    def __init__(self, program: Program, **options: Any) -> None:
        super().__init__(program, **options)
        self.open: dict[str, bytes] = {}  # the newest task of each node

    def apply(self, signal: Any, actor: Actor = SYSTEM, **facts: Any) -> Decision:
        decision = super().apply(signal, actor, **facts)
        self.open |= {task.node: task.id for task in decision.tasks if isinstance(task, TaskOpened)}
        return decision

    def verb(self, name: str, payload: Any = None, actor: Actor = ANN, **options: Any) -> Document:
        self.events += 1
        raw = None if payload is None else msgspec.json.encode(payload)
        version = options.pop("version", self.instance.entity_version + 1)
        self.apply(VerbCalled(b"%016d" % self.events, name, version, raw, **options), actor)
        return self

    def edit(self, version: int | None = None, *, material: bool = True, origin: bytes | None = None) -> Document:
        known = self.instance.entity_version + 1 if version is None else version
        self.apply(EntityChanged(known, "update", material, origin), ANN)
        return self

    def decide(self, name: str, decision: str = "approved", actor: Actor = BEN) -> Document:
        self.apply(Decided(b"decision" * 2, self.open[usr(name)], decision), actor)
        return self

    def pass_gate(self, id: str = APPROVE) -> Document:
        self.run_call(id, {})
        return self

    def submitted(self) -> Document:
        self.start()
        return self.verb("submit")

    @property
    def stance(self) -> Stance | None:
        return stance(self.program, self.instance)

    @property
    def told(self) -> list[str]:
        assert self.last is not None
        return [event.type for event in self.last.events]
