"""Small graphs for the compiler's tests, written as short as they read, and strategies for random ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from holdfast.graph.kinds import KINDS
from holdfast.graph.model import Child, Edge, Graph, Node, Policy, Retry, Wait

DEFAULTS: dict[str, dict[str, Any]] = {
    "task": {"handler": "run"},
    "compensation": {"handler": "undo"},
    "action": {"handler": "mutate"},
    "rule": {"handler": "rule"},
    "effect": {"handler": "mail"},
    "join": {"mode": "all"},
    "wait_timer": {"delay": 5.0},
    "sub_flow": {"child": Child(flow="other")},
}


def node(id: str, kind: str = "task", **fields: Any) -> Node:
    return Node(id=id, kind=kind, **(DEFAULTS.get(kind, {}) | fields))


def edge(source: str, target: str, id: str | None = None, **fields: Any) -> Edge:
    return Edge(id=id or f"{source}-{target}", source=source, target=target, **fields)


def graph(nodes: list[Node], edges: list[Edge], **fields: Any) -> Graph:
    entry = fields.pop("entry", nodes[0].id)
    return Graph(name="order", entry=entry, nodes=tuple(nodes), edges=tuple(edges), **fields)


def chain(*nodes: Node, **fields: Any) -> Graph:
    """The nodes one after the other, then an end."""
    path = [*nodes, node("end", "end")]
    edges = [edge(before.id, after.id) for before, after in pairwise(path)]
    return graph(path, [*edges, *fields.pop("more", [])], **fields)


def fork_and_join(mode: str | None = "all", **fields: Any) -> Graph:
    nodes = [node("fork", "split"), node("ship"), node("bill"), node("met", "join", mode=mode), node("end", "end")]
    pairs = [("fork", "ship"), ("fork", "bill"), ("ship", "met"), ("bill", "met"), ("met", "end")]
    return graph(nodes, [edge(*pair) for pair in pairs], **fields)


def shape(nodes: str, edges: str, **fields: Any) -> Graph:
    """`shape("fork:split a b end:end", "fork>a fork>b a>end b>end:error")`; tasks and `completed` need no mention."""
    made = [node(*word.split(":")) for word in nodes.split()]
    drawn = [word.partition(":") for word in edges.split()]
    return graph(made, [edge(*pair.split(">"), on=on or "completed") for pair, _, on in drawn], **fields)


NAMES = st.text(min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CONFIG = st.dictionaries(st.text(max_size=8), JSON, max_size=3)
SECONDS = st.floats(-10, 1e6, allow_nan=False)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


RETRIES = st.builds(
    Retry, calls=st.integers(-1, 5), delay=SECONDS, backoff=st.sampled_from(["fixed", "linear", "odd"]), jitter=SECONDS
)
NODES = st.builds(
    Node,
    id=NAMES,
    kind=st.sampled_from([*KINDS, "mystery"]),
    handler=optional(NAMES),
    retry=optional(RETRIES),
    timeout=optional(SECONDS),
    deadline=optional(SECONDS),
    priority=st.integers(-5, 105),
    delay=optional(SECONDS),
    until=optional(NAMES),
    wait=optional(st.builds(Wait, event=NAMES, key=optional(NAMES), early=st.booleans())),
    child=optional(st.builds(Child, flow=NAMES, version=optional(st.integers(0, 3)))),
    mode=optional(st.sampled_from(["all", "any", "most"])),
    input=optional(st.dictionaries(NAMES, NAMES, max_size=2)),
    edit_window=optional(st.sampled_from(["editable", "locked", "ajar"])),
    stable=st.booleans(),
    slot=optional(NAMES),
    config=CONFIG,
    metadata=CONFIG,
)
EDGES = st.builds(
    Edge,
    id=NAMES,
    source=NAMES,
    target=NAMES,
    on=st.sampled_from(["completed", "error", "timeout", "approved"]),
    when=optional(st.sampled_from(["input.a > 1", "input.", "true"])),
    priority=st.integers(-3, 3),
    label=optional(NAMES),
)
POLICIES = st.builds(
    Policy,
    on_error=st.sampled_from(["fail", "dlq", "shrug"]),
    data=st.sampled_from(["value", "context"]),
    chain_limit=optional(st.integers(0, 10)),
    timeout=optional(SECONDS),
    on_timeout=optional(NAMES),
)
ANY_GRAPH = st.builds(
    Graph,
    name=NAMES,
    entry=NAMES,
    nodes=st.lists(NODES, max_size=4).map(tuple),
    edges=st.lists(EDGES, max_size=4).map(tuple),
    version=st.integers(0, 3),
    policy=POLICIES,
    variables=st.dictionaries(NAMES, st.sampled_from(["number", "any", "wish"]), max_size=2),
)


@st.composite
def shaped_graphs(draw: st.DrawFn) -> Graph:
    """Graphs whose fields are sound and whose shape is anything: splits, joins, loops, jumps, dead ends."""
    ids = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    kinds = ["start", "split", "split", "join", "task", "state", "wait_timer", "action", "end", "terminal"]
    nodes = [node(id, draw(st.sampled_from(kinds)), config={"output_keys": ["total"]}) for id in ids]
    pairs = draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=18))
    edges = [
        edge(source, target, f"e{number}", on=draw(st.sampled_from(["completed", "completed", "error", "go"])))
        for number, (source, target) in enumerate(pairs)
    ]
    return graph(nodes, edges, policy=Policy(data="context"))


@st.composite
def sound_graphs(draw: st.DrawFn) -> Graph:
    """Graphs that compile: blocks in sequence, each a step, choice, loop, escape, or a fork with blocks inside."""
    counter = iter(range(1_000_000))
    nodes: list[Node] = [node("start", "start")]
    edges: list[Edge] = []

    def add(kind: str, after: str, **fields: Any) -> str:
        id = f"{kind}{next(counter)}"
        nodes.append(node(id, kind, **fields))
        edges.append(edge(after, id, f"e{next(counter)}", priority=draw(st.integers(0, 2))))
        return id

    def link(source: str, target: str, **fields: Any) -> None:
        edges.append(edge(source, target, f"e{next(counter)}", **fields))

    def block(after: str, depth: int) -> str:
        form = draw(st.sampled_from(["step", "choice", "loop", "escape", *(["fork"] if depth < 3 else [])]))
        first = add("task" if form != "fork" else "split", after, retry=Retry(delay=0.5, jitter=0.1))
        if form == "choice":
            other = add("condition", first)
            last = add("task", other)
            link(other, last, when="input.amount > 0.5", priority=-1)
            return last
        if form == "loop":
            last = add("state", first)
            link(last, first, on="again")
            return last
        if form == "escape":
            last = add("state", first)
            link(last, "start", on="rejected")
            return last
        if form == "fork":
            ends = [sequence(first, depth + 1) for _ in range(draw(st.integers(2, 3)))]
            last = add("join", ends[0], mode=draw(st.sampled_from(["all", "any"])))
            for end in ends[1:]:
                link(end, last)
            return last
        return first

    def sequence(after: str, depth: int) -> str:
        # A split's edges lead to nodes of their own, so that a fork in a fork does not share its branches.
        for _ in range(draw(st.integers(1, 2))):
            after = block(after, depth)
        return after

    add("end", sequence("start", 0))
    return graph(nodes, edges)
