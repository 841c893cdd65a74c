"""Consumers whose handlers are in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import HoldfastError, Refused
from holdfast.runtime.consumers.events import ConsumerEvent
from holdfast.store.consumers import NewConsumer
from holdfast.store.deliveries import Claimed

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)
Key = tuple[str, str, str]  # organisation, environment, name

TRANSITION: Final = "transition"
HOOK: Final = "hook"
COMPLETE: Final = "complete"


class FactHandler(msgspec.Struct, frozen=True):
    """A function with the facts it is for."""

    function: Function
    kind: str
    state: str | None = None
    via: str | int | None = None
    code: str | None = None
    transactional: bool = False
    is_async: bool = True
    takes_context: bool = True

    @property
    def weight(self) -> int:
        """A handler that names more comes before one that names less."""
        return 2 * (self.state is not None or self.code is not None) + (self.via is not None)

    def fits(self, event: ConsumerEvent) -> bool:
        return (
            self.kind == event.kind
            and self.state in (None, event.to_state)
            and (self.via is None or self.via in (event.event, event.code))
            and self.code in (None, event.hook)
        )


class Consumer:
    """A consumer of this process: `on`, `hook` and `complete` add its handlers.

    For each fact the handler that names most is called. A fact without a handler counts as processed.
    """

    def __init__(self, org: str, new: NewConsumer, on_added: Callable[[], None]) -> None:
        self.org = org
        self.new = new
        self._handlers: list[FactHandler] = []
        self._on_added = on_added

    @property
    def name(self) -> str:
        return self.new.name

    @property
    def environment(self) -> str:
        return self.new.environment

    @property
    def key(self) -> Key:
        return self.org, self.new.environment, self.new.name

    def on(
        self, state: str | None = None, *, via: str | int | None = None, transactional: bool = False
    ) -> Callable[[F], F]:
        """Decorate the handler of transitions into a state, by an event's name or code; of all without either."""
        return lambda function: self._add(function, TRANSITION, state, via, None, transactional)

    def hook(self, code: str | None = None, *, transactional: bool = False) -> Callable[[F], F]:
        """Decorate the handler of a hook; of all that have none without a code."""
        return lambda function: self._add(function, HOOK, None, None, code, transactional)

    def complete(self, state: str | None = None, *, transactional: bool = False) -> Callable[[F], F]:
        """Decorate the handler of the completion of a state's gates: `event.send` names the event to send."""
        return lambda function: self._add(function, COMPLETE, state, None, None, transactional)

    def _add(
        self, function: F, kind: str, state: str | None, via: str | int | None, code: str | None, transactional: bool
    ) -> F:
        handler = FactHandler(
            function, kind, state, via, code, transactional, inspect.iscoroutinefunction(function),
            _takes_context(function),
        )  # fmt: skip
        if any(_is_for_the_same(handler, other) for other in self._handlers):
            raise HoldfastError(
                f"The consumer {self.name!r} has a handler of these facts already.",
                code="HANDLER_DUPLICATE",
                hint="Register one function per state, event or hook.",
            )
        self._handlers = sorted([*self._handlers, handler], key=lambda each: -each.weight)
        self._on_added()
        return function

    def find(self, event: ConsumerEvent) -> FactHandler | None:
        return next((handler for handler in self._handlers if handler.fits(event)), None)


class Consumers:
    """Registry of the consumers of this process."""

    def __init__(self) -> None:
        self.on_added: Callable[[], None] = lambda: None
        self._known: dict[Key, Consumer] = {}

    def add(self, org: str, new: NewConsumer) -> Consumer:
        consumer = Consumer(org, new, lambda: self.on_added())
        if consumer.key in self._known:
            raise Refused(
                f"The consumer {new.name!r} of {new.environment!r} is in this process already.",
                code="CONSUMER_DUPLICATE",
                hint="Keep what `engine.consumer` returned, and add handlers to it.",
            )
        self._known[consumer.key] = consumer
        self.on_added()
        return consumer

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._known.values()))

    def __bool__(self) -> bool:
        return bool(self._known)


def _takes_context(function: Function) -> bool:
    if not callable(function):
        raise HoldfastError("A handler is a function.", code="HANDLER_NOT_CALLABLE", hint="Pass the function itself.")
    places = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    if not places:
        raise HoldfastError(
            "A handler of facts takes the event.", code="HANDLER_SIGNATURE", hint="Write `def handler(event, ctx): …`."
        )
    return len(places) > 1 or places[0].kind is places[0].VAR_POSITIONAL


def _is_for_the_same(one: FactHandler, other: FactHandler) -> bool:
    return (one.kind, one.state, one.via, one.code) == (other.kind, other.state, other.via, other.code)


class Handed(msgspec.Struct, gc=False):
    """A fact in the hands of a handler of this process."""

    claimed: Claimed
    consumer: Consumer
    since: float  # of the loop's clock: when it was claimed, or its time was extended
