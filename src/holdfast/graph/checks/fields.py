"""Checks of single fields of a node, an edge or the policy, without a look at its neighbours."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from holdfast.errors import HoldfastError
from holdfast.graph.cron import cron_problem, read_zone
from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.kinds import KINDS, Behaviour, Kind
from holdfast.graph.model import Edge, Graph, Node, Policy, Retry, dump_struct
from holdfast.graph.rules import RULES
from holdfast.graph.windows import WINDOWS
from holdfast.payloads import canonical, encode

VARIABLE_TYPES: Final = ("number", "string", "boolean", "list", "object", "time", "any")
BACKOFFS: Final = ("fixed", "linear", "exponential")
MODES: Final = ("all", "any")
POLICY_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "on_error": ("rollback", "dlq", "suspend", "fail"),
    "on_cancel": ("rollback", "stop"),
    "data": ("value", "context"),
    "missing": ("null", "zero"),
}
LONGEST_NAME: Final = 200  # bytes, because that is what the columns and their indexes hold
LONGEST_DURATION: Final = 100 * 365.25 * 86_400
EXACT_INTEGERS: Final = 2**53
NEEDS_HANDLER: Final = frozenset({Behaviour.WORK, Behaviour.CALL, Behaviour.EMIT})
INVISIBLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})

Found = Iterator[Diagnostic]


def check_fields(graph: Graph) -> Found:
    yield from _graph_fields(graph)
    yield from _policy_fields(graph.policy)
    for node in graph.nodes:
        yield from _node_fields(node)
    for edge in graph.edges:
        yield from _edge_fields(edge)


def _graph_fields(graph: Graph) -> Found:
    yield from _name(graph.name, "name", is_id=True)
    if graph.kind not in RULES:
        yield problem("UNKNOWN_GRAPH_KIND", f"There is no kind of graph called {graph.kind!r}.", "kind")
    yield from _version(graph.version, "version")
    for path, kind in graph.variables.items():
        if kind not in VARIABLE_TYPES:
            yield problem("BAD_VARIABLE", f"{path!r} is declared as {kind!r}, which is no type.", f"variables.{path}")
        if not all(part.isidentifier() for part in path.split(".")):
            yield problem("BAD_VARIABLE", f"{path!r} is not a dotted path.", f"variables.{path}")
    yield from _storable(graph.config, "config", "config")


def _policy_fields(policy: Policy) -> Found:
    for field, choices in POLICY_CHOICES.items():
        value = getattr(policy, field)
        if value not in choices:
            message = f"{field} is {value!r}; it must be one of {', '.join(choices)}."
            yield problem("BAD_POLICY", message, f"policy.{field}")
    if policy.chain_limit is not None and policy.chain_limit < 1:
        yield problem("BAD_POLICY", f"chain_limit is {policy.chain_limit}; it must be 1 or more.", "policy.chain_limit")
    yield from _duration(policy.timeout, "policy.timeout")
    if policy.keeps_error and policy.data != "context":
        message = "keeps_error needs data 'context': without one, an error has no place to be kept in."
        yield problem("BAD_POLICY", message, "policy.keeps_error")
    for capability in policy.capabilities:
        yield from _name(capability, "policy.capabilities")


def _node_fields(node: Node) -> Found:
    place = f"nodes.{node.id}"
    names = {
        "handler": node.handler,
        "queue": node.queue,
        "undo": node.undo,
        "guard": node.guard,
        "slot": node.slot,
        "wait.event": node.wait and node.wait.event,
        "child.flow": node.child and node.child.flow,
    }
    yield from _name(node.id, place, is_id=True)
    for field, name in names.items():
        yield from _name(name, f"{place}.{field}")
    yield from _duration(node.timeout, f"{place}.timeout")
    yield from _duration(node.deadline, f"{place}.deadline")
    yield from _duration(node.delay, f"{place}.delay", zero_allowed=True)
    if not 0 <= node.priority <= 100:
        yield problem("BAD_PRIORITY", f"priority is {node.priority}.", f"{place}.priority")
    if node.edit_window is not None and node.edit_window not in WINDOWS:
        message = f"There is no edit window called {node.edit_window!r}."
        yield problem("BAD_EDIT_WINDOW", message, f"{place}.edit_window")
    if node.retry is not None:
        yield from _retry(node.retry, f"{place}.retry")
    if node.child is not None and node.child.version is not None:
        yield from _version(node.child.version, f"{place}.child.version")
    for role in node.roles:
        yield from _name(role, f"{place}.roles")
    for capability in node.capabilities:
        yield from _name(capability, f"{place}.capabilities")
    yield from _duration(node.due, f"{place}.due")
    yield from _kind_fields(node, place)
    if output_keys(node) is None:
        yield problem("BAD_VALUE", "output_keys must be a list of names.", f"{place}.config.output_keys")
    yield from _storable(node, "nodes", place)


def _kind_fields(node: Node, place: str) -> Found:
    traits = KINDS.get(node.kind)
    if traits is None:
        yield problem("UNKNOWN_KIND", f"There is no node kind called {node.kind!r}.", f"{place}.kind")
        return
    behaviour = traits.behaviour
    if behaviour in NEEDS_HANDLER and node.handler is None:
        yield problem("MISSING_HANDLER", f"A node of kind {node.kind} needs a handler.", place)
    if behaviour is Behaviour.JOIN:
        yield from _mode(node.mode, place)
    if behaviour is Behaviour.TIMER:
        yield from _timer(node, place)
    if traits.starts_flow and node.child is None:
        yield problem("MISSING_CHILD", "The sub-flow does not name the flow to start.", place)
    yield from _misplaced_fields(node, traits, place)


def _misplaced_fields(node: Node, traits: Kind, place: str) -> Found:
    """Report fields that have no effect on a node of this kind."""
    given = {
        "output": (node.output is not None, "only a step that answers has an output to map"),
        "best_effort": (node.best_effort, "only work and emit can fail"),
        "capabilities": (bool(node.capabilities), "nobody acts here"),
        "assignee": (node.assignee is not None, "there is no task to assign"),
        "self_approval": (not node.self_approval, "nobody decides here"),
    }
    allowed = traits.fields | {"output"} if _answers(node, traits) else traits.fields - {"output"}
    for field, (is_given, why) in given.items():
        if is_given and field not in allowed:
            message = f"A node of kind {node.kind} takes no {field}: {why}."
            yield problem("FIELD_MISPLACED", message, f"{place}.{field}")


def _answers(node: Node, traits: Kind) -> bool:
    """An effect that is not awaited brings no answer; a sub-flow brings one wherever it is started."""
    if traits.behaviour is Behaviour.EMIT:
        return node.awaits
    return "output" in traits.fields or node.child is not None


def _timer(node: Node, place: str) -> Found:
    given = [name for name in ("delay", "after", "until", "cron") if getattr(node, name) is not None]
    if not given:
        yield problem("TIMER_WITHOUT_TIME", "The timer does not say for how long or until when.", place)
    if len(given) > 1:
        yield problem("TIMER_AMBIGUOUS", f"The timer has {' and '.join(given)}.", place)
    wrong = None if node.cron is None else cron_problem(node.cron)
    if wrong is not None:
        yield problem("BAD_CRON", f"The cron expression {node.cron!r} cannot be read: {wrong}.", f"{place}.cron")
    if node.timezone is None:
        return
    if read_zone(node.timezone) is None:
        yield problem("BAD_TIMEZONE", f"There is no time zone called {node.timezone!r}.", f"{place}.timezone")
    elif not {"until", "cron"}.intersection(given):
        yield problem("BAD_TIMEZONE", "The timer has a time zone and no time of day.", f"{place}.timezone")


def _mode(mode: str | None, place: str) -> Found:
    if mode is None:
        yield problem("MISSING_MODE", "The join does not say how many tokens it waits for.", place)
    elif mode not in MODES:
        yield problem("BAD_MODE", f"There is no join mode called {mode!r}.", f"{place}.mode")


def _edge_fields(edge: Edge) -> Found:
    place = f"edges.{edge.id}"
    yield from _name(edge.id, place, is_id=True)
    yield from _name(edge.on, f"{place}.on")
    yield from _name(edge.guard, f"{place}.guard")
    yield from _storable(edge, "edges", place)


def _name(name: str | None, place: str, *, is_id: bool = False) -> Found:
    if name is None:
        return
    if not name.strip():
        yield problem("BAD_NAME", "The name is empty.", place)
    elif any(unicodedata.category(character) in INVISIBLE for character in name):
        yield problem("BAD_NAME", f"The name {name[:LONGEST_NAME]!r} contains a control character.", place)
    elif (size := len(name.encode())) > LONGEST_NAME:
        yield problem("BAD_NAME", f"The name has {size} bytes.", place)
    elif is_id and "@" in name:
        yield problem("BAD_NAME", f"The name {name!r} contains '@', which separates a token's path and hop.", place)


def _version(version: int, place: str) -> Found:
    if not 1 <= version < 2**31:
        yield problem("BAD_VERSION", f"The version is {version}.", place)


def _duration(seconds: float | None, place: str, *, zero_allowed: bool = False) -> Found:
    if seconds is None:
        return
    # A chained comparison is also false for NaN.
    if not (0 <= seconds <= LONGEST_DURATION) or (seconds == 0 and not zero_allowed):
        yield problem("BAD_DURATION", f"The duration is {seconds} seconds.", place)


def _retry(retry: Retry, place: str) -> Found:
    sound = {
        "calls": 1 <= retry.calls < 2**31,
        "delay": 0 <= retry.delay <= LONGEST_DURATION,
        "max_delay": 0 <= retry.max_delay <= LONGEST_DURATION,
        "backoff": retry.backoff in BACKOFFS,
        "jitter": 0 <= retry.jitter <= 1,
    }
    for field, holds in sound.items():
        if not holds:
            yield problem("BAD_RETRY", f"{field} is {getattr(retry, field)!r}.", f"{place}.{field}")


def output_keys(node: Node) -> tuple[str, ...] | None:
    """The context keys the node says it writes; None if what it says is not a list of names."""
    keys: Any = node.config.get("output_keys", [])
    if not isinstance(keys, list):
        return None
    names = tuple(key for key in cast(list[Any], keys) if isinstance(key, str))
    return names if len(names) == len(cast(list[Any], keys)) else None


def _storable(item: msgspec.Struct | dict[str, Any], collection: str, place: str) -> Found:
    """Report content that the database or the hash would refuse later, with its place."""
    content = dump_struct(item, collection) if isinstance(item, msgspec.Struct) else item
    try:
        # Nested as deep as it will stand in the compiled graph, because depth is limited there.
        encode({collection: {"": content}}, place)
        canonical(content)
    except HoldfastError as error:
        yield problem("BAD_VALUE", f"[{error.code}] {error.message}", place)
        return
    if _has_inexact_number(content):
        message = "A number at or above 2^53 cannot be stored and hashed exactly."
        yield problem("BAD_VALUE", message, place)


def _has_inexact_number(value: Any) -> bool:
    """A large whole float comes back from the database as an integer, which would change the hash."""
    if isinstance(value, dict):
        return any(_has_inexact_number(item) for item in cast(dict[str, Any], value).values())
    if isinstance(value, list):
        return any(_has_inexact_number(item) for item in cast(list[Any], value))
    return isinstance(value, float) and abs(value) >= EXACT_INTEGERS
