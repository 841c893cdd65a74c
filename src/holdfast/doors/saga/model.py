"""A saga as it was written: plain frozen values, in the order of the builder's calls. Durations are seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import BuiltinMethodType, MethodType
from typing import Any

import msgspec

Function = Callable[..., Any]


def is_same_function(one: Function, other: Function) -> bool:
    """Every look at a method gives a new object, equal to the last. Of anything else, what its author calls equal need
    not do the same."""
    return one is other or (
        isinstance(one, MethodType | BuiltinMethodType) and type(one) is type(other) and one == other
    )


class Named(msgspec.Struct, frozen=True, kw_only=True, tag_field="item", omit_defaults=True):
    name: str
    metadata: dict[str, Any] = {}


class Called(Named, frozen=True, kw_only=True, omit_defaults=True):
    """An item with a handler: a step or a compensation."""

    handler: str
    retries: int | None = None  # all calls, the first included; below 1 means 1; None: what the flow says
    retry_delay: float = 0.0
    max_delay: float = 3600.0
    backoff: str = "fixed"
    jitter: float = 0.0
    timeout: float | None = None  # per call
    idempotent: bool = True
    priority: int = 50
    queue: str | None = None


class Compensation(Called, frozen=True, kw_only=True, tag="compensation", omit_defaults=True):
    """Undoes one step; only a rollback calls it."""


class Step(Called, frozen=True, kw_only=True, tag="step", omit_defaults=True):
    """One call of a handler."""

    deadline: float | None = None  # for the whole step, all calls included
    delay: float = 0.0  # before the first call
    input: dict[str, str] | None = None  # name → expression; None: the value that arrived, or the context
    output: dict[str, str] | None = None  # name → expression over `response`; None: the result as it is
    undo: Compensation | None = None


class Call(Named, frozen=True, kw_only=True, tag="call", omit_defaults=True):
    """A function that runs inside the engine's transaction."""

    handler: str
    retries: int | None = None  # all calls, each in a transaction of its own
    retry_delay: float = 0.0
    max_delay: float = 3600.0
    backoff: str = "fixed"
    jitter: float = 0.0
    timeout: float | None = None  # per call
    deadline: float | None = None
    input: dict[str, str] | None = None
    output: dict[str, str] | None = None
    undo: Compensation | None = None


class Sent(Named, frozen=True, kw_only=True, omit_defaults=True):
    """An effect: written with the step, delivered afterwards."""

    awaits: bool = False  # go on only when it is delivered, with the answer
    retries: int | None = None  # all attempts, the first included; None: as the outbox does by itself
    retry_delay: float = 30.0
    max_delay: float = 3600.0
    backoff: str = "exponential"
    jitter: float = 0.5
    timeout: float | None = None  # per attempt
    deadline: float | None = None  # of a step that waits
    input: dict[str, str] | None = None  # name → expression: what is sent; None: the value that arrived


class Webhook(Sent, frozen=True, kw_only=True, tag="webhook", omit_defaults=True):
    """A signed request."""

    url: str
    type: str | None = None
    secret: str | None = None
    signed: bool = True
    envelope: bool = True
    headers: dict[str, Any] | None = None


class Mail(Sent, frozen=True, kw_only=True, tag="mail", omit_defaults=True):
    """A mail. Fields that are None come with the data."""

    to: str | list[str] | None = None
    subject: str | None = None
    text: str | None = None
    html: str | None = None
    cc: str | list[str] | None = None
    bcc: str | list[str] | None = None
    reply_to: str | list[str] | None = None
    sender: str | None = None


class Human(Named, frozen=True, kw_only=True, tag="human", omit_defaults=True):
    """A task that a person decides before the flow continues."""

    form: dict[str, Any] | None = None
    roles: tuple[str, ...] = ()
    due: float | None = None
    priority: int = 50
    undo: Compensation | None = None


class WaitEvent(Named, frozen=True, kw_only=True, tag="wait_event", omit_defaults=True):
    """A wait for an event of this instance, or, with a key, for one addressed by that key."""

    event: str
    key: str | None = None  # an expression
    early: bool | None = None  # False: an event that comes before the flow is here is refused
    deadline: float | None = None
    undo: Compensation | None = None


class Sleep(Named, frozen=True, kw_only=True, tag="sleep", omit_defaults=True):
    """A wait until a moment, given in one of four ways."""

    seconds: float | None = None
    after: str | None = None  # an expression that gives seconds
    until: str | None = None  # an expression that gives a moment
    cron: str | None = None
    timezone: str | None = None


class SubFlow(Named, frozen=True, kw_only=True, tag="sub_flow", omit_defaults=True):
    """The start of another flow, and the wait for its end."""

    flow: str
    version: int | None = None  # None: the newest when it starts
    input: dict[str, str] | None = None  # name → expression; None: the value that arrived
    deadline: float | None = None
    undo: Compensation | None = None


class SavePoint(Named, frozen=True, kw_only=True, tag="save_point", omit_defaults=True):
    """A rollback that comes from behind it stops here."""


class Condition(Named, frozen=True, kw_only=True, tag="condition", omit_defaults=True):
    """A branch on an expression. True: the next items. False: the items of `otherwise`."""

    expression: str
    otherwise: tuple[Item, ...] | None = None


class Rejoin(msgspec.Struct, frozen=True, kw_only=True, tag_field="item", tag="rejoin"):
    """The merge of the branches of a condition; see branch_merges.py."""


class Fork(Named, frozen=True, kw_only=True, tag="fork", omit_defaults=True):
    branches: tuple[tuple[Item, ...], ...]


class Parallel(Named, frozen=True, kw_only=True, tag="parallel", omit_defaults=True):
    """A fork that waits for all its branches unless a join of its own follows."""

    branches: tuple[tuple[Item, ...], ...]


class Join(Named, frozen=True, kw_only=True, tag="join", omit_defaults=True):
    mode: str = "all"


NamedItem = (
    Step | Call | Webhook | Mail | Human | WaitEvent | Sleep | SubFlow | SavePoint | Condition | Fork | Parallel | Join
)
Item = NamedItem | Rejoin
Items = tuple[Item, ...]
UNDOABLE = (Step, Call, Human, WaitEvent, SubFlow)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A built flow: returned by `Flow.build`, accepted by `engine.publish`."""

    name: str
    version: int
    items: Items
    handlers: dict[str, Function] = {}  # the functions among the handlers; the others are known by name only
    dlq: bool = False
    retries: int = 1  # of the steps and compensations that say nothing
    timeout: float | None = None  # for the whole instance
    data: str = "value"  # what a step is given: the value that arrived, or the context

    @property
    def calls(self) -> frozenset[str]:
        """Names of handlers that are functions inside the engine's transaction."""
        return frozenset(item.handler for item in every_item(self.items) if isinstance(item, Call))

    @property
    def steps(self) -> frozenset[str]:
        """Names of handlers that steps and compensations call."""
        called = [one for item in every_item(self.items) for one in (item, undo_of(item)) if isinstance(one, Called)]
        return frozenset(one.handler for one in called)

    @property
    def source(self) -> dict[str, Any]:
        """The definition as JSON data, to be kept beside the compiled graph; functions stay behind."""
        options = (
            ("dlq", self.dlq, False),
            ("retries", self.retries, 1),
            ("timeout", self.timeout, None),
            ("data", self.data, "value"),
        )
        return {
            "kind": "saga",
            "name": self.name,
            "version": self.version,
            **{name: value for name, value, default in options if value != default},
            "items": [msgspec.to_builtins(item) for item in self.items],
        }


def inner_paths(item: Item) -> tuple[Items, ...]:
    """The paths inside an item, in the order they were written."""
    if isinstance(item, Fork | Parallel):
        return item.branches
    return (item.otherwise,) if isinstance(item, Condition) and item.otherwise is not None else ()


def every_item(items: Items) -> Iterator[Item]:
    """All items in the order they were written, those of branches behind the item that holds them."""
    for item in items:
        yield item
        for path in inner_paths(item):
            yield from every_item(path)


def undo_of(item: Item) -> Compensation | None:
    return item.undo if isinstance(item, UNDOABLE) else None
