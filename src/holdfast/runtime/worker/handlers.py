"""Handlers by name: plain functions, sync or async, with typed inputs where the function asks for them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import msgspec

from holdfast.core.model.program import CALL_QUEUE, queue_name
from holdfast.doors.saga.model import Function, is_same_function
from holdfast.errors import DoNotRetry, HoldfastError, NotFound
from holdfast.runtime.schemas.schemas import reader_of
from holdfast.runtime.validation import check_text
from holdfast.runtime.worker.apps import app_of, origin_of, whole_name

__all__ = ["DoNotRetry", "Function", "Handler", "Registry", "StepInputInvalid", "nobody_asks", "queues_of"]


class StepInputInvalid(DoNotRetry):
    """Input that does not fit the step; the same input would not fit the next time either."""

    code = "INPUT_INVALID"

    def __init__(self, message: str, misfits: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.misfits = misfits


class Handler(msgspec.Struct, frozen=True):
    name: str
    function: Function
    is_async: bool
    convert: Callable[[Any], Any] | None  # to the type the function's second parameter asks for


class Registry:
    """Registry of this process's functions, by name."""

    def __init__(self, app: str | None = None) -> None:
        self.app = app  # None: each handler's is the one of its function
        self.origins: dict[str, str] = {}  # where the code is, by every name it is offered under
        self.on_added: Callable[[], None] = nobody_asks
        self._handlers: dict[str, Handler] = {}
        self._registered: dict[str, Function] = {}  # as they were given

    def register(self, name: str, function: Function) -> Function:
        if not name:
            raise HoldfastError("A handler needs a name.", code="HANDLER_NAME_EMPTY")
        check_text(name, "name of a handler")
        _check_callable(name, function)
        known = self._registered.get(name)
        if known is not None and not is_same_function(known, function):
            raise HoldfastError(
                f"The handler {name!r} is already registered.",
                code="HANDLER_DUPLICATE",
                hint="Give it another name, or register it once.",
            )
        handler = _handler(name, function)  # refused, it does not keep the name from the next
        for offered in dict.fromkeys((name, whole_name(self.app or app_of(function), name))):
            if offered != name and offered in self._registered:
                continue  # it was given in full
            self._handlers[offered] = handler
            self.origins = {**self.origins, offered: origin_of(function)}
        self._registered[name] = function
        if known is None:
            self.on_added()
        return function

    def get(self, name: str) -> Handler | None:
        return self._handlers.get(name)

    def require(self, name: str) -> Handler:
        handler = self._handlers.get(name)
        if handler is None:
            raise NotFound(
                f"There is no handler {name!r} here.", code="HANDLER_UNKNOWN", hint="Register it in this process."
            )
        return handler

    def names(self) -> list[str]:
        """Every name that work may wait under: the short ones, and the whole ones with their application."""
        return sorted(self._handlers)

    def __contains__(self, name: str) -> bool:
        return name in self._handlers


def queues_of(handlers: Registry, calls: Registry, places: Iterable[str]) -> list[str]:
    """The queues this worker serves: one per handler and call, plain and in each of its own queues."""
    served = (None, *places)
    return [
        *(queue_name(place, name) for place in served for name in handlers.names()),
        *(CALL_QUEUE + queue_name(place, name) for place in served for name in calls.names()),
    ]


def nobody_asks() -> None:
    """Do nothing: the listener of a registry while no worker runs."""


def _check_callable(name: str, function: Any) -> None:
    if not callable(function):
        raise HoldfastError(
            f"What is registered as the handler {name!r} is {type(function).__name__}, not a function.",
            code="HANDLER_NOT_CALLABLE",
            hint="Pass the function itself: `engine.register(name, function)`.",
        )


def _handler(name: str, function: Function) -> Handler:
    is_async = _is_async(function)
    return Handler(name, function if is_async else _for_a_thread(function), is_async, _converter(name, function))


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _for_a_thread(function: Function) -> Function:
    """Wrap a function for a thread: a future cannot carry StopIteration, and its reader would wait for ever."""

    @wraps(function)
    def run(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except StopIteration as stop:
            raise RuntimeError("The handler raised StopIteration.") from stop

    return run


def _converter(name: str, function: Function) -> Callable[[Any], Any] | None:
    """A handler that annotates its input gets it in that type: a Pydantic model, a dataclass, a msgspec struct …"""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if len(parameters) < 2:
        raise HoldfastError(
            f"The handler {name!r} must take a context and the input.",
            code="HANDLER_SIGNATURE",
            hint="Write it as `def handler(ctx, data): …`.",
        )
    wanted = _annotation(function, parameters[1].name)
    if wanted is None or wanted is Any or wanted is object:
        return None
    return _fitting(name, reader_of(wanted))


def _fitting(name: str, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        try:
            return convert(value)
        except Exception as misfit:
            raise StepInputInvalid(f"The input does not fit what the handler {name!r} asks for: {misfit}") from misfit

    return fit


def _annotation(function: Function, parameter: str) -> Any:
    try:
        return typing.get_type_hints(function).get(parameter)
    except (NameError, TypeError, AttributeError):
        return None
