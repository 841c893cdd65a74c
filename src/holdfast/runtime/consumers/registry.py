"""Consumers whose handlers are in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.consumer.events import Event
from holdfast.consumer.handlers import COMPLETE, HOOK, TRANSITION, F, FactHandler, Handlers
from holdfast.errors import Refused
from holdfast.store.consumers import NewConsumer

Key = tuple[str, str, str]  # organisation, environment, name


class Consumer:
    """A consumer of this process: `on`, `hook` and `complete` add its handlers.

    For each fact the handler that names most is called. A fact without a handler counts as processed.
    """

    def __init__(self, org: str, new: NewConsumer, on_added: Callable[[], None]) -> None:
        self.org = org
        self.new = new
        self._handlers = Handlers(new.name, on_added)

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
        return lambda function: self._handlers.add(function, TRANSITION, state, via, None, transactional=transactional)

    def hook(self, code: str | None = None, *, transactional: bool = False) -> Callable[[F], F]:
        """Decorate the handler of a hook; of all that have none without a code."""
        return lambda function: self._handlers.add(function, HOOK, None, None, code, transactional=transactional)

    def complete(self, state: str | None = None, *, transactional: bool = False) -> Callable[[F], F]:
        """Decorate the handler of the completion of a state's gates: `event.send` names the event to send."""
        return lambda function: self._handlers.add(function, COMPLETE, state, None, None, transactional=transactional)

    def find(self, event: Event) -> FactHandler | None:
        return self._handlers.find(event)


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
