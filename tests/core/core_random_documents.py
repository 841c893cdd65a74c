"""Random documents: one to three stages, each with a slot of random steps, two gates, and verbs to leave it by.

Every way through a slot asks somebody. `demanded` says how often at the least, by the gate behind the slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from holdfast.graph.model import Child, Edge, Graph, Node, Policy, Region, Wait

Draw = Callable[[st.SearchStrategy[Any]], Any]
Exit = tuple[str, str]
WINDOWS = ("editable", "amend_only", "locked")


class RandomDocument(msgspec.Struct, frozen=True):
    graph: Graph
    demanded: dict[str, int]  # gate → approvals that every way to it has
    slots: dict[str, str]  # gate → the slot before it


class Builder:
    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.regions: list[Region] = []
        self.slot = ""
        self.inside: list[str] = []
        self.left = 0

    def one_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def node(self, id: str, kind: str, **options: Any) -> str:
        self.nodes.append(Node(id=id, kind=kind, **options))
        return id

    def edge(self, source: str, target: str, on: str = "completed", **options: Any) -> None:
        self.edges.append(Edge(id=f"e{len(self.edges):03}", source=source, target=target, on=on, **options))

    def connect(self, exits: list[Exit], target: str) -> None:
        for source, on in exits:
            self.edge(source, target, on, priority=9)

    # --- the slot -----------------------------------------------------------------------------------------------------

    def usr(self, kind: str, **options: Any) -> str:
        id = self.node(f"usr:{self.slot}:{kind[:4]}{len(self.nodes)}", kind, **options)
        self.inside.append(id)
        return id

    def sequence(self, depth: int, least: int) -> tuple[str, list[Exit], int]:
        """The first node, the ways on, and the number of approvals on the way that has the fewest."""
        head, exits, asked = "", list[Exit](), 0
        for _ in range(self.draw(st.integers(1, 3))):
            entry, following, more = self.block(depth)
            self.connect(exits, entry)
            head, exits, asked = head or entry, following, asked + more
        while asked < least:
            entry, following, more = self.approval()
            self.connect(exits, entry)
            exits, asked = following, asked + more
        return head, exits, asked

    def block(self, depth: int) -> tuple[str, list[Exit], int]:
        self.left -= 1
        kinds = ["approval", "approval", "work", "call", "wait", "key", "pause", "post", "script", "child"]
        if depth < 3 and self.left > 0:
            kinds += ["fork"] * 5 + ["choice"] * 2
        kind = self.one_of(*kinds)
        if kind == "approval":
            return self.approval()
        if kind == "fork":
            return self.fork(depth)
        if kind == "choice":
            return self.choice(depth)
        return self.plain(kind)

    def plain(self, kind: str) -> tuple[str, list[Exit], int]:
        made: dict[str, Callable[[], str]] = {
            "work": lambda: self.usr("task", handler="h"),
            "call": lambda: self.usr("action", handler="h"),
            "wait": lambda: self.usr("wait_event", wait=Wait(event=self.one_of("ping", "approved", "submit0"))),
            "key": lambda: self.usr("wait_event", wait=Wait(event="pod", key="'k'")),
            "pause": lambda: self.usr("wait_timer", delay=10.0),
            "post": lambda: self.usr("effect", handler="mail", awaits=self.one_of(True, False)),
            "script": lambda: self.usr("script", input={"n": "context.n"}),
            "child": lambda: self.usr("sub_flow", child=Child(flow="child")),
        }
        return (id := made[kind]()), [(id, "completed")], 0

    def approval(self) -> tuple[str, list[Exit], int]:
        due = self.one_of(None, None, 30.0)
        id = self.usr("approval", due=due)
        self.edge(id, f"sys:slot:{self.slot}:rejected", "rejected")
        if due is not None and self.one_of(True, False):
            self.edge(id, f"sys:slot:{self.slot}:rejected", "timeout")
        return id, [(id, "approved")], 1

    def choice(self, depth: int) -> tuple[str, list[Exit], int]:
        id, exits, fewest = self.usr("condition"), list[Exit](), list[int]()
        for when in ("context.n > 1", None):
            head, following, asked = self.sequence(depth, 0)
            self.edge(id, head, when=when)
            exits += following
            fewest.append(asked)
        return id, exits, min(fewest)

    def fork(self, depth: int) -> tuple[str, list[Exit], int]:
        mode, counts = self.one_of("all", "any"), list[int]()
        id = self.usr("split")
        meet = self.usr("join", mode=mode)
        for _ in range(self.draw(st.integers(2, 3))):
            head, exits, asked = self.sequence(depth + 1, 0)
            self.edge(id, head)
            self.connect(exits, meet)
            counts.append(asked)
        return id, [(meet, "completed")], sum(counts) if mode == "all" else min(counts)

    # --- the document -------------------------------------------------------------------------------------------------

    def state(self, id: str, verbs: dict[str, str], *nodes: str, window: str = "editable", **options: Any) -> None:
        self.regions.append(Region(id=id, nodes=(id, *nodes), verbs=verbs, window=window, **options))

    def stage(self, index: int, verbs: dict[str, str], after: str) -> tuple[str, int]:
        """A state that gates leave, with a slot in front of them. Return its gate, and what that demands."""
        self.slot, self.inside, self.left = f"s{index}", [], 8
        ports = {port: self.node(f"sys:slot:s{index}:{port}", "slot") for port in ("in", "out", "rejected")}
        state, draft = self.node(f"sys:state:stage{index}", "slot"), "sys:state:draft"
        gates = [self.node(f"sys:gate:{name}{index}", "lifecycle_gate", handler="g") for name in ("approve", "reject")]
        least = self.draw(st.integers(1, 2))
        head, exits, asked = self.sequence(0, least)
        self.edge(state, ports["in"])
        self.edge(ports["in"], head)
        self.edge(ports["in"], ports["rejected"], "never")
        self.connect(exits, ports["out"])
        self.edge(ports["out"], gates[0])
        self.edge(ports["rejected"], gates[1])
        self.edge(gates[0], after)
        self.edge(gates[1], draft)
        stable = self.one_of(True, False)
        self.state(state, verbs, *gates, window=self.one_of(*WINDOWS))
        self.regions.append(
            Region(
                id=f"slot:s{index}", nodes=(*ports.values(), *self.inside), verbs=verbs, window=self.one_of(*WINDOWS),
                stable=stable, amendment=self.one_of(draft, draft, None),
            )
        )  # fmt: skip
        return gates[0], asked


@st.composite
def documents(draw: Draw) -> RandomDocument:
    builder = Builder(draw)
    draft, gone = "sys:state:draft", "sys:state:cancelled"
    stages = draw(st.integers(1, 3))
    builder.node("sys:start", "start")
    builder.node(draft, "state")
    verbs = {"withdraw": draft, "cancel": gone}
    builder.edge("sys:start", draft)
    builder.edge(draft, "sys:state:stage0", "submit0", guard=builder.one_of(None, "act"))
    builder.edge(draft, gone, "cancel")
    builder.state(draft, {"submit0": "sys:state:stage0", "cancel": gone})
    demanded, slots = dict[str, int](), dict[str, str]()
    for index in range(stages):
        last = index == stages - 1
        after = "sys:state:active" if last else builder.one_of(f"sys:state:rest{index}", f"sys:state:stage{index + 1}")
        if after == f"sys:state:rest{index}":
            builder.node(after, "state")
            onward = {f"submit{index + 1}": f"sys:state:stage{index + 1}", "withdraw": draft}
            for verb, target in onward.items():
                builder.edge(after, target, verb)
            builder.state(after, onward, window="amend_only")
        gate, asked = builder.stage(index, verbs, after)
        demanded[gate], slots[gate] = asked, f"s{index}"
    for name in ("active", "cancelled"):
        builder.edge(builder.node(f"sys:state:{name}", "slot"), "sys:end")
        builder.state(f"sys:state:{name}", {}, window="locked")
    builder.node("sys:end", "terminal")
    expires = builder.one_of(None, None, None, 500.0)
    policy = Policy(
        on_error=builder.one_of("suspend", "suspend", "dlq"),
        on_cancel="stop",
        data=builder.one_of("context", "context", "value"),
        timeout=expires,
        on_timeout=None if expires is None else builder.one_of(draft, gone),
    )
    graph = Graph(
        name="document:random", kind="effective", entry="sys:start", nodes=tuple(builder.nodes),
        edges=tuple(builder.edges), policy=policy, regions=tuple(builder.regions),
    )  # fmt: skip
    return RandomDocument(graph, demanded, slots)
