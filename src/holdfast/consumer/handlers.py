"""Handlers of facts by what they are for, here in the engine and in processes of their own alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.consumer.events import Event
from holdfast.errors import HoldfastError

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

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

    def fits(self, event: Event) -> bool:
        return (
            self.kind == event.kind
            and self.state in (None, event.to_state)
            and (self.via is None or self.via in (event.event, event.code))
            and self.code in (None, event.hook)
        )


class Handlers:
    """Handlers of one consumer. For each fact the one that names most is called."""

    def __init__(self, name: str, on_added: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._on_added = on_added
        self._handlers: list[FactHandler] = []

    def add(
        self, function: F, kind: str, state: str | None, via: str | int | None, code: str | None, *, transactional: bool
    ) -> F:
        handler = FactHandler(
            function, kind, state, via, code, transactional, inspect.iscoroutinefunction(function),
            _takes_context(function),
        )  # fmt: skip
        if any(_is_for_the_same(handler, other) for other in self._handlers):
            raise HoldfastError(
                f"The consumer {self._name!r} has a handler of these facts already.",
                code="HANDLER_DUPLICATE",
                hint="Register one function per state, event or hook.",
            )
        self._handlers = sorted([*self._handlers, handler], key=lambda each: -each.weight)
        self._on_added()
        return function

    def find(self, event: Event) -> FactHandler | None:
        return next((handler for handler in self._handlers if handler.fits(event)), None)


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
