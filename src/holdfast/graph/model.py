"""The one graph every front door compiles to: nodes with a behaviour, edges with `on`, `when`, `guard`, `priority`.

The kernel knows a node only by the row of its kind in `kinds.py`.
Everything here is plain data: it loads from and saves to JSON without loss (`load_graph`, `dump_graph`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec

from holdfast.errors import DefinitionError
from holdfast.graph.decode_errors import Misfit, find_misfits, read_complaint
from holdfast.graph.diagnostics import problem
from holdfast.graph.kinds import KINDS, Behaviour, Kind

GRAPH_FORMAT: Final = 1


class Retry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The retries of a handler: the number of calls, the first included, and the delays between them."""

    calls: int = 1
    delay: float = 0.0  # seconds before the second call
    backoff: str = "fixed"  # fixed | linear | exponential
    max_delay: float = 3600.0
    jitter: float = 0.0  # share of the delay that is spread, 0 … 1; derived from ids, never random


class Wait(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The event that a rest node waits for beside those on its edges, by name or addressed by key."""

    event: str
    key: str | None = None  # an expression; its value addresses the wait
    early: bool | None = None  # whether an event that comes before the wait is kept; None: as the policy says


class Child(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The flow a sub_flow node starts."""

    flow: str
    version: int | None = None  # None: the newest published one when the child starts


class Node(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    kind: str
    handler: str | None = None  # work: handler · call: operation · emit: effect kind
    queue: str | None = None  # work: who claims it; None: the workers that offer the handler
    retry: Retry | None = None
    timeout: float | None = None  # seconds per attempt: a retryable failure
    deadline: float | None = None  # seconds for the whole visit: takes the `timeout` edge
    idempotent: bool = True
    undo: str | None = None  # work, call, rest: the compensation that takes back what the step did
    priority: int = 50  # 0 … 100, higher is sooner
    delay: float | None = None  # timer: seconds · work: seconds before the first call
    after: str | None = None  # timer: an expression that gives seconds
    until: str | None = None  # timer: an expression that gives a moment
    cron: str | None = None  # timer: the next match of a cron expression
    timezone: str | None = None  # timer: the time zone of cron and until; None: UTC
    wait: Wait | None = None  # rest: an event by name or key
    child: Child | None = None  # rest: a sub-flow
    form: dict[str, Any] | None = None  # human, approval: what the person fills in
    roles: tuple[str, ...] = ()  # human, approval: who may claim it; empty: anybody
    assignee: str | None = None  # human, approval: an expression that gives the person the task is assigned to
    capabilities: tuple[str, ...] = ()  # rest: all of them are needed to act here, any of them to see it
    self_approval: bool = True  # approval: may the starter of the instance decide it?
    due: float | None = None  # human, approval: seconds until it should be decided; takes the `timeout` edge, if any
    mode: str | None = None  # join: all | any
    awaits: bool = False  # emit: wait for the effect's receipt
    input: dict[str, str] | None = None  # mapping: name → expression; None: the token's value
    output: dict[str, str] | None = None  # mapping: name → expression over `response`; None: the output as it is
    best_effort: bool = False  # work, emit: out of calls counts as completed, the error stays in the context
    guard: str | None = None  # capability needed to act here
    slot: str | None = None
    edit_window: str | None = None  # editable | amend_only | locked
    stable: bool = False  # a version drift here routes to the amendment
    config: dict[str, Any] = {}  # further settings of the kind; the kernel passes them through
    metadata: dict[str, Any] = {}

    @property
    def traits(self) -> Kind:
        return KINDS[self.kind]

    @property
    def behaviour(self) -> Behaviour:
        return KINDS[self.kind].behaviour


class Edge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    id: str
    source: str
    target: str
    on: str = "completed"  # completed | error | timeout are the engine's own; any other name is an event
    when: str | None = None  # an expression; None: always
    guard: str | None = None
    priority: int = 0  # lower is tried first
    label: str | None = None
    provenance: str = "flow"  # 'envelope', a slot id, or the front door


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules that the front door sets for the whole graph."""

    on_error: str = "fail"  # rollback | dlq | suspend | fail
    on_cancel: str = "stop"  # rollback | stop
    data: str = "value"  # value: an output replaces the token's value · context: it merges into the context
    missing: str = "null"  # null | zero: the value of a missing number in an ordering
    chain_limit: int | None = None  # automatic steps since the last external signal
    timeout: float | None = None  # seconds for the whole instance
    on_timeout: str | None = None  # node the root token goes to when it expires
    keeps_error: bool = False  # data "context": the last error of a step is kept there as `_last_error`
    capabilities: tuple[str, ...] = ()  # all of them are needed to start an instance, any of them to see one
    early: bool = True  # events that come before a step waits for them are kept, where the wait says nothing


class Region(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A state of a document or a slot: nodes that share an edit window and the verbs that interrupt them."""

    id: str  # the node of the state, or slot:<name>
    nodes: tuple[str, ...]
    window: str = "editable"  # editable | amend_only | locked
    stable: bool = False  # a material edit meanwhile amends the document
    verbs: dict[str, str] = {}  # verb → the node where the root token goes on
    guards: dict[str, str] = {}  # verb → the capability that its caller needs
    conditions: dict[str, str] = {}  # verb → the expression that must hold; `input` is the payload of the call
    amendment: str | None = None  # the node where it goes on after a material edit in a stable region


class Graph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A definition as the compiler takes it. `variables` declares the types of the paths expressions may read."""

    name: str
    entry: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    version: int = 1
    kind: str = "saga"  # saga | steps | machine | envelope | org_patch | effective
    policy: Policy = Policy()
    variables: dict[str, str] = {}  # "input.amount": "number"; an undeclared namespace is refused
    config: dict[str, Any] = {}  # further settings of the kind of graph; the kernel passes them through
    regions: tuple[Region, ...] = ()  # of a document's graph; each node lies in one at the most
    format: int = GRAPH_FORMAT


def load_graph(data: bytes | str | dict[str, Any]) -> Graph:
    """Read a graph from JSON text or from already decoded JSON; every misfit is in the error's `diagnostics`."""
    return read_struct(data, Graph, "graph")


def dump_graph(graph: Graph) -> dict[str, Any]:
    """Dump a graph as JSON data, without fields that hold their default."""
    return dump_struct(graph, "graph")


StructT = TypeVar("StructT", bound=msgspec.Struct)


def read_struct(data: bytes | str | dict[str, Any], model: type[StructT], noun: str) -> StructT:
    """Read a versioned document: first its `format`, because an unknown one makes every other complaint misleading."""
    document: Any = None
    try:
        document = msgspec.json.decode(data) if isinstance(data, bytes | str) else data
        _require_format(document, noun)
        return msgspec.convert(document, model)
    except msgspec.ValidationError as error:
        raise _unreadable(noun, list(find_misfits(document, model)) or [read_complaint(error)]) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _unreadable(noun, [read_complaint(error)]) from error


def dump_struct(value: msgspec.Struct, noun: str) -> dict[str, Any]:
    """Dump a struct as plain JSON data without defaults: equal values dump alike, however they were written."""
    try:
        return cast(dict[str, Any], _plain(value))
    except (TypeError, RecursionError) as error:
        raise _unreadable(noun, [read_complaint(error)]) from error


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = ((name, getattr(value, name), default) for name, default in _defaults(type(value)))
        return {name: _plain(item) for name, item, default in fields if not _same(item, default)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(list[Any], value)]
    return msgspec.to_builtins(value)


@cache
def _defaults(model: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(model)
    )


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _require_format(document: Any, noun: str) -> None:
    if not isinstance(document, dict):
        return
    found = cast(dict[str, Any], document).get("format", GRAPH_FORMAT)
    if type(found) is not int or found != GRAPH_FORMAT:
        raise DefinitionError(
            f"The {noun} has format {found!r}, this release reads format {GRAPH_FORMAT}.",
            code="GRAPH_FORMAT_UNSUPPORTED",
            hint="Upgrade Holdfast, or write the definition in the supported format.",
            place="format",
        )


def _unreadable(noun: str, misfits: list[Misfit]) -> DefinitionError:
    sentence, place = misfits[0]
    where = f" at {place}" if place else ""
    more = f" ({len(misfits)} misfits in all)" if len(misfits) > 1 else ""
    return DefinitionError(
        f"The {noun} cannot be read{where}: {sentence}.{more}",
        code="GRAPH_INVALID",
        hint="`holdfast docs graph` lists every field with its type.",
        diagnostics=tuple(problem("GRAPH_INVALID", f"{told}.", found or noun) for told, found in misfits),
        place=place,
    )
