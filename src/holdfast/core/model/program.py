"""A compiled graph made ready to run: edges grouped by event, expressions as closures, what repeats encoded once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from holdfast.graph.compiled import Compiled
from holdfast.graph.expressions import Expression, compile_expression, with_response
from holdfast.graph.kinds import Behaviour, Kind
from holdfast.graph.machine import MachineConfig, StateConfig
from holdfast.graph.model import Edge, Node, Policy, Region, Retry
from holdfast.graph.rules import Rules, rules_of

ONE_CALL = Retry()
NO_APPS: Final[Mapping[str, str]] = MappingProxyType({})
CALL_QUEUE = "call:"  # calls are claimed by the workers that offer the operation, apart from handlers of that name


class Way(msgspec.Struct, frozen=True, gc=False):
    """An edge, ready to be chosen."""

    id: str
    target: str
    when: Expression | None
    guard: str | None
    chosen: bytes  # what the step row records when this way alone is taken


class Area(msgspec.Struct, frozen=True, gc=False):
    """A region, ready to be interrupted."""

    id: str
    window: str
    stable: bool
    verbs: dict[str, Way]  # by verb: the way of the root token
    amendment: str | None

    @property
    def targets(self) -> list[str]:
        """The nodes where the root token may go on after an interrupt."""
        amended = [] if self.amendment is None else [self.amendment]
        return [*(way.target for way in self.verbs.values()), *amended]


class Place(msgspec.Struct, frozen=True, gc=False):
    """A node, ready to be entered."""

    id: str
    id_bytes: bytes
    node: Node
    traits: Kind  # the row of its kind
    behaviour: Behaviour
    depth: int
    ways: dict[str, tuple[Way, ...]]
    retry: Retry
    handler: str  # its full name: with the application, where the flow was published by one
    queue: str
    keeps_value: bool  # the token must carry its value: the output alone does not decide what comes next
    is_split: bool
    mapping: dict[str, Expression] | None
    output: dict[str, Expression] | None  # maps the answer of the handler
    assignee: Expression | None
    key: Expression | None
    until: Expression | None
    after: Expression | None
    onward: Way | None  # the one way to the one next node, where nothing needs to be evaluated or waited for
    is_end: bool
    state: StateConfig | None = None  # of a machine: its rules and its timeout
    area: Area | None = None  # of a document: the region that it lies in


APPROVED_BY: Final = "approved_by"
REJECTED_BY: Final = "rejected_by"
LAST_ERROR: Final = "_last_error"


class Program(msgspec.Struct, frozen=True, gc=False):
    definition: bytes
    name: str
    version: int
    hash: str
    entry: str
    places: dict[str, Place]
    policy: Policy
    rules: Rules  # what its kind of graph changes
    merges: bool  # outputs merge into the context instead of replacing the token's value
    own: frozenset[str]  # names that only the engine writes into the data
    join_modes: dict[str, str]  # split → mode of its join
    joins: dict[str, str | None]  # split → its join
    begins: Place | None  # the entry, where it is a step that can be opened at once
    waits_by_key: bool = False
    undoes: dict[str, str] = {}  # compensation → the step it takes back
    save_points: frozenset[str] = frozenset()
    compiler_version: str = ""  # of the compiler that made it: checked at a start, never for a running instance
    format: int = 0
    machine: MachineConfig | None = None
    events: frozenset[str] = frozenset()  # of a machine: the names its edges take
    areas: dict[str, Area] = {}  # of a document: its regions, by id


def link(compiled: Compiled, definition: bytes = b"", apps: Mapping[str, str] = NO_APPS) -> Program:
    """Turn the stored artefact into a program for `decide`. `apps`: the application of each short name of a handler."""
    areas = {region.id: _area(region, compiled) for region in compiled.regions.values()}
    around = {node: areas[region.id] for region in compiled.regions.values() for node in region.nodes}
    places = {node.id: _place(node, compiled, apps, around.get(node.id)) for node in compiled.nodes.values()}
    return Program(
        definition=definition,
        name=compiled.name,
        version=compiled.version,
        hash=compiled.hash,
        entry=compiled.entry,
        places=places,
        policy=compiled.policy,
        rules=rules_of(compiled.kind),
        merges=compiled.policy.data == "context",
        own=_own(compiled),
        join_modes={j.split: j.mode for j in compiled.joins.values()},
        joins=dict(compiled.splits),
        begins=places[compiled.entry] if _begins(compiled) else None,
        waits_by_key=any(n.wait is not None and n.wait.key is not None for n in compiled.nodes.values()),
        undoes={n.undo: n.id for n in compiled.nodes.values() if n.undo is not None},
        save_points=frozenset(n.id for n in compiled.nodes.values() if n.traits.stops_rollback),
        compiler_version=compiled.compiler_version,
        format=compiled.format,
        machine=msgspec.convert(compiled.config, MachineConfig) if _is_machine(compiled) else None,
        events=frozenset(edge.on for edge in compiled.edges.values()) if _is_machine(compiled) else frozenset(),
        areas=areas,
    )


def _area(region: Region, compiled: Compiled) -> Area:
    verbs = {verb: _interrupt(region, verb, target, compiled) for verb, target in region.verbs.items()}
    return Area(region.id, region.window, region.stable, verbs, region.amendment)


def _interrupt(region: Region, verb: str, target: str, compiled: Compiled) -> Way:
    id, when = f"{region.id}:{verb}", region.conditions.get(verb)
    condition = None if when is None else _condition(when, compiled)
    return Way(id, target, condition, region.guards.get(verb), msgspec.json.encode([id]))


def _is_machine(compiled: Compiled) -> bool:
    return rules_of(compiled.kind).tells_facts and bool(compiled.config)


def _own(compiled: Compiled) -> frozenset[str]:
    if rules_of(compiled.kind).signs_approvals:
        return frozenset({APPROVED_BY, REJECTED_BY, LAST_ERROR})
    return frozenset({LAST_ERROR} if compiled.policy.keeps_error else ())


def _place(node: Node, compiled: Compiled, apps: Mapping[str, str], area: Area | None) -> Place:
    traits, behaviour, handler = node.traits, node.behaviour, _handler(node, apps)
    edges = [compiled.edges[id] for id in compiled.adjacency.get(node.id, ())]
    ways = _ways(edges, compiled, is_split=traits.splits)
    return Place(
        id=node.id,
        id_bytes=node.id.encode(),
        node=node,
        traits=traits,
        behaviour=behaviour,
        depth=compiled.depth[node.id],
        ways=ways,
        retry=(node.retry or ONE_CALL) if node.idempotent else ONE_CALL,
        handler=handler,
        queue=_queue(node, handler),
        keeps_value=_keeps_value(node, ways, compiled.policy),
        is_split=traits.splits,
        mapping={k: _value(e, compiled) for k, e in node.input.items()} if node.input is not None else None,
        output={k: _answer(e, compiled) for k, e in node.output.items()} if node.output is not None else None,
        assignee=_value(node.assignee, compiled) if node.assignee else None,
        key=_value(node.wait.key, compiled) if node.wait and node.wait.key else None,
        until=_value(node.until, compiled) if node.until else None,
        after=_value(node.after, compiled) if node.after else None,
        onward=_onward(node, ways, compiled),
        is_end=behaviour is Behaviour.END,
        state=msgspec.convert(node.config, StateConfig) if _is_machine(compiled) else None,
        area=area,
    )


def _onward(node: Node, ways: dict[str, tuple[Way, ...]], compiled: Compiled) -> Way | None:
    way = next(iter(ways.get("completed", ())), None)
    if way is None or not _is_default(way) or node.output is not None or compiled.policy.chain_limit is not None:
        return None
    if compiled.regions:  # the general path knows of regions, the fast ones need not
        return None
    target = compiled.nodes[way.target]
    is_level = compiled.depth[node.id] == compiled.depth[target.id]
    goes_on = target.behaviour is Behaviour.END or _is_plain(target)
    return way if is_level and node.behaviour is Behaviour.WORK and goes_on else None


def _is_plain(node: Node) -> bool:
    """Check if a step can be opened as it is: nothing to evaluate, no timer to set."""
    return node.behaviour is Behaviour.WORK and node.input is None and node.deadline is None and not node.delay


def _begins(compiled: Compiled) -> bool:
    policy = compiled.policy
    is_short = policy.chain_limit is None and policy.timeout is None and not compiled.regions
    return is_short and _is_plain(compiled.nodes[compiled.entry])


def _keeps_value(node: Node, ways: dict[str, tuple[Way, ...]], policy: Policy) -> bool:
    """Check if a token at this node must carry its value in the snapshot.

    A plain step of a saga needs no copy: its input is the value, and its failure brings it back.
    """
    return (
        node.behaviour not in (Behaviour.WORK, Behaviour.CALL)
        or bool(ways.keys() - {"completed"})
        or not any(_is_default(way) for way in ways.get("completed", ()))
        or node.input is not None
        or node.output is not None
        or node.best_effort
        or node.deadline is not None
        or bool(node.delay)
        or policy.data == "context"
        or policy.on_error in ("suspend", "dlq")
    )


def _handler(node: Node, apps: Mapping[str, str]) -> str:
    name = node.handler or ""
    return f"{apps[name]}/{name}" if name in apps else name


def _queue(node: Node, handler: str) -> str:
    name = queue_name(node.queue, handler)
    return CALL_QUEUE + name if node.behaviour is Behaviour.CALL else name


def queue_name(queue: str | None, handler: str) -> str:
    """The name of a queue. It contains the handler, so a worker of the queue claims only work that it can do."""
    return handler if queue is None else f"{queue}:{handler}"


def _ways(edges: list[Edge], compiled: Compiled, *, is_split: bool) -> dict[str, tuple[Way, ...]]:
    ways: dict[str, tuple[Way, ...]] = {}
    for edge in edges:
        when = _condition(edge.when, compiled) if edge.when else None
        way = Way(edge.id, edge.target, when, edge.guard, msgspec.json.encode([edge.id]))
        ways[edge.on] = (*ways.get(edge.on, ()), way)
    return ways if is_split else {on: tuple(sorted(found, key=_is_default)) for on, found in ways.items()}


def _is_default(way: Way) -> bool:
    """Check if an edge always holds. It is tried last, at any place in the list, or it would hide the others."""
    return way.when is None and way.guard is None


def _condition(text: str, compiled: Compiled) -> Expression:
    return compile_expression(text, compiled.variables, missing=_missing(compiled))


def _value(text: str, compiled: Compiled) -> Expression:
    return compile_expression(text, compiled.variables, missing=_missing(compiled), result="any")


def _answer(text: str, compiled: Compiled) -> Expression:
    return compile_expression(text, with_response(compiled.variables), missing=_missing(compiled), result="any")


def _missing(compiled: Compiled) -> Literal["null", "zero"]:
    return "zero" if compiled.policy.missing == "zero" else "null"
