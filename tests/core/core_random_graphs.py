"""Random sound graphs: sequences of blocks, nested splits, loops, escapes, every behaviour.

A block knows which nodes an edge may lead back or out to: the heads of the sequences around it, and the joins of the
scopes it stands in. An edge to a head further outside is an escape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from holdfast.graph.model import Behaviour, Child, Edge, Graph, Node, Policy, Retry, Wait

Draw = Callable[[st.SearchStrategy[Any]], Any]
Exit = tuple[str, str]  # a node and the event that leads on from it

CONDITIONS = ("input.n > 1", "context.n < 3", "input.ok == true", "input.kind in ['a', 'b']")
GUARD = "act"
PERSON = "ada"


class Builder:
    def __init__(self, draw: Draw, size: int) -> None:
        self.draw = draw
        self.left = size
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.outside = ["terminal"]  # where a token may leave to, outermost first

    # --- pieces -----------------------------------------------------------------------------------------------------

    def node(self, kind: str, **options: Any) -> str:
        id = f"{kind[:3]}{len(self.nodes)}"
        self.nodes.append(Node(id=id, kind=kind, **options))
        return id

    def edge(self, source: str, target: str, on: str = "completed", **options: Any) -> None:
        self.edges.append(Edge(id=f"e{len(self.edges):03}", source=source, target=target, on=on, **options))

    def connect(self, exits: list[Exit], target: str) -> None:
        for source, on in exits:
            self.edge(source, target, on, priority=9)

    def maybe(self, chance: int = 3) -> bool:
        return self.draw(st.integers(0, chance)) == chance

    def somewhere(self) -> str:
        return self.draw(st.sampled_from(self.outside))

    def one_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    # --- blocks -----------------------------------------------------------------------------------------------------

    def sequence(self, depth: int, least: int, most: int) -> tuple[str, list[Exit]]:
        mark = len(self.outside)
        head: str | None = None
        exits: list[Exit] = []
        for _ in range(self.draw(st.integers(least, most))):
            entry, following = self.block(depth)
            if head is None:
                head = entry
            self.connect(exits, entry)
            self.outside.append(entry)
            exits = following
            if not exits:
                break
        del self.outside[mark:]
        assert head is not None
        return head, exits

    def block(self, depth: int) -> tuple[str, list[Exit]]:
        self.left -= 1
        simple = [self.work, self.rest, self.pause, self.emit, self.script, self.sub_flow]
        if not depth:
            simple.append(self.save_point)
        nested = [self.fork] * 6 + [self.choice] * 2 if depth < 3 and self.left > 0 else []
        return self.one_of(*simple, self.work, self.rest, *nested)(depth)

    def work(self, depth: int) -> tuple[str, list[Exit]]:
        calls = self.draw(st.integers(1, 3))
        retry = Retry(calls=calls, delay=self.one_of(0, 0, 5), backoff="exponential", jitter=0.5)
        mapping = {"n": "input.n", "ok": "context.ok"} if self.maybe(5) else None
        deadline = 60.0 if self.maybe(5) else None
        kind = self.one_of("task", "task", self.one_of("action", "rule", "lifecycle_gate"))
        delay = 3.0 if self.maybe(5) else None
        output = {"n": "response.n", "was": "input.n"} if self.maybe(5) else None
        best_effort = kind == "task" and self.maybe(5)
        id = self.node(
            kind, handler="h", retry=retry, input=mapping, deadline=deadline, delay=delay, idempotent=not self.maybe(7),
            output=output, best_effort=best_effort,
        )  # fmt: skip
        self._ways_out(id, deadline)
        return id, [(id, "completed")]

    def rest(self, depth: int) -> tuple[str, list[Exit]]:
        wait = self.one_of(
            None, None, Wait(event="ping", early=True), Wait(event="pod", key="input.key"), Wait(event="pod", key="'k'")
        )
        deadline = 60.0 if self.maybe() else None
        due = 30.0 if self.maybe() else None
        kind = self.one_of("state", "approval", "human")
        capabilities = (GUARD,) if self.maybe(5) else ()
        people = self._people() if kind != "state" else {}
        id = self.node(kind, wait=wait, deadline=deadline, due=due, capabilities=capabilities, **people)
        self._ways_out(id, deadline)
        if self.maybe():
            self.edge(id, self.somewhere(), "rejected", guard=GUARD if self.maybe() else None)
        answer = self.one_of("go", "go", "approved", "completed") if kind != "state" and wait is None else "go"
        exits = [(id, answer)] if wait is None or self.maybe() else []
        return id, [*exits, (id, "completed")] if wait is not None else exits

    def _people(self) -> dict[str, Any]:
        assignee = self.one_of(*[None] * 5, f"'{PERSON}'", f"'{PERSON}'", "context.key", "context.n")
        return {"assignee": assignee, "self_approval": self.maybe(1)}

    def pause(self, depth: int) -> tuple[str, list[Exit]]:
        options = {"until": "input.at"} if self.maybe() else {"delay": 10.0}
        id = self.node("wait_timer", **options)
        self._ways_out(id, None)
        return id, [(id, "completed")]

    def emit(self, depth: int) -> tuple[str, list[Exit]]:
        awaits = self.maybe(1)
        output = {"key": "response.key"} if awaits and self.maybe() else None
        kind = self.one_of("effect", "notification")
        id = self.node(kind, handler="mail", awaits=awaits, output=output, best_effort=self.maybe())
        self._ways_out(id, None)
        return id, [(id, "completed")]

    def script(self, depth: int) -> tuple[str, list[Exit]]:
        mapping = self.one_of({"n": "input.n", "ok": "true"}, {"kind": "'a'", "key": "context.key"})
        return (id := self.node("script", input=mapping)), [(id, "completed")]

    def sub_flow(self, depth: int) -> tuple[str, list[Exit]]:
        deadline = 60.0 if self.maybe() else None
        id = self.node("sub_flow", child=Child(flow="child"), deadline=deadline)
        self._ways_out(id, deadline)
        return id, [(id, "completed")]

    def choice(self, depth: int) -> tuple[str, list[Exit]]:
        id = self.node("condition")
        exits: list[Exit] = []
        for when in (self.one_of(*CONDITIONS), None):
            head, following = self.sequence(depth, 1, 2)
            self.edge(id, head, when=when, guard=GUARD if when is None and self.maybe(9) else None)
            exits.extend(following)
        return id, exits

    def fork(self, depth: int) -> tuple[str, list[Exit]]:
        id = self.node("split")
        joins = not self.maybe(5)
        meet = self.node("join", mode=self.one_of("all", "any")) if joins else self.node("end")
        mark = len(self.outside)
        self.outside.append(meet)
        for index in range(self.draw(st.integers(2, 3))):
            head, exits = self.sequence(depth + 1, 1, 2)
            self.edge(id, head, when=self.one_of(*CONDITIONS) if index and self.maybe(4) else None)
            self.connect(exits, meet)
        del self.outside[mark:]
        if joins and self.maybe():
            self.edge(meet, self.somewhere(), "error")
        return id, [(meet, "completed")] if joins else []

    def compensate(self) -> None:
        """Half of what can be taken back has something that does it."""
        for position, node in enumerate(self.nodes):
            if node.behaviour in (Behaviour.WORK, Behaviour.CALL, Behaviour.REST) and self.maybe(1):
                undo = f"undo-{node.id}"
                retry = Retry(calls=self.draw(st.integers(1, 2)), delay=self.one_of(0, 5))
                self.nodes[position] = msgspec.structs.replace(node, undo=undo)
                self.nodes.append(Node(id=undo, kind="compensation", handler="u", retry=retry))

    def save_point(self, depth: int) -> tuple[str, list[Exit]]:
        return (id := self.node("save_point")), [(id, "completed")]

    def _ways_out(self, id: str, deadline: float | None) -> None:
        if self.maybe():
            self.edge(id, self.somewhere(), "error")
        if self.maybe(1 if deadline is not None else 5):
            self.edge(id, self.somewhere(), "timeout")


@st.composite
def graphs(draw: Draw) -> Graph:
    """Most are sound; the compiler has the last word."""
    builder = Builder(draw, 10)
    head, exits = builder.sequence(0, 2, 4)
    builder.nodes.extend([Node(id="terminal", kind="terminal"), Node(id="late", kind="task", handler="h")])
    builder.connect(exits, "terminal")
    builder.edge("late", "terminal")
    expires = builder.one_of(*[None] * 5, 500.0)
    data = builder.one_of("value", "context")
    policy = Policy(
        on_error=builder.one_of("fail", "suspend", "dlq", "rollback", "rollback"),
        on_cancel=builder.one_of("rollback", "stop"),
        data=data,
        missing=builder.one_of("null", "zero"),
        chain_limit=builder.one_of(None, None, 3),
        timeout=expires,
        on_timeout=builder.one_of("late", None) if expires is not None else None,
        keeps_error=data == "context" and builder.maybe(1),
    )
    builder.edges.append(Edge(id="late", source=head, target="late", on="error"))
    builder.compensate()
    return Graph(
        name="random", entry=head, nodes=tuple(builder.nodes), edges=tuple(builder.edges), policy=policy,
        kind=builder.one_of("saga", "steps"),
    )  # fmt: skip
