"""The application of a worker: `module:attribute`, imported and made into an engine.

The attribute is one of three things:

- an `Engine` that is not open yet, with its handlers registered;
- a function without parameters that returns such an engine;
- a function with one parameter: it gets an open engine on HOLDFAST_DSN (else the embedded server), registers its
  handlers and may publish.

Either function may be `async`.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final

from holdfast.errors import HoldfastError, NotFound
from holdfast.runtime.engine import Engine

_FORM: Final = "Write it as module:attribute, for example orders.worker:engine."


def load(target: str) -> Any:
    """Import the object of that name; the current directory is searched first."""
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise HoldfastError(f"{target!r} does not name an application.", code="APP_INVALID", hint=_FORM)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _import(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise NotFound(f"The module {module_name!r} has no {path!r}.", code="APP_NOT_FOUND", hint=_FORM)
        found = getattr(found, name)
    return found


@asynccontextmanager
async def opened(target: str | None, *, needs_handlers: bool = True) -> AsyncGenerator[Engine]:
    """Open the application's engine, with a handler or a consumer if `needs_handlers`; without a target, a bare one."""
    application = Engine() if target is None else load(target)
    if isinstance(application, Engine):
        engine, configure = application, None
    elif not callable(application):
        raise _not_an_application(str(target))
    elif _takes_an_engine(application):
        engine, configure = Engine(), application
    else:
        engine, configure = await _answer(application), None
    if not isinstance(engine, Engine):
        raise _not_an_application(str(target))
    async with engine:
        if configure is not None:
            await _answer(configure, engine)
        engine.load_invokers()  # those of installed packages, without any code of the application
        if needs_handlers and not (engine.handlers.names() or engine.calls.names() or engine.consumers_here):
            raise HoldfastError(
                f"{target!r} registers neither a handler nor a consumer, so this worker could do nothing.",
                code="APP_WITHOUT_HANDLERS",
                hint="Register one with engine.register(name, function), or a consumer with engine.consumer(name).",
            )
        yield engine


def _import(module_name: str) -> Any:
    try:
        return import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module_name}.".startswith(f"{missing.name}."):
            raise _failed(module_name, missing) from missing
        raise NotFound(
            f"There is no module {missing.name!r} here.",
            code="APP_NOT_FOUND",
            hint="Run the command in the directory that holds it, or install its package.",
        ) from None
    except HoldfastError:
        raise
    except Exception as failure:
        raise _failed(module_name, failure) from failure


def _failed(module_name: str, failure: Exception) -> HoldfastError:
    frame = traceback.extract_tb(failure.__traceback__)[-1]
    place = f"{frame.filename}, line {frame.lineno}"
    return HoldfastError(
        f"Importing {module_name!r} failed: {type(failure).__name__}: {failure} ({place}).",
        code="APP_FAILED",
        hint="The module must be importable in a new process.",
    )


def _takes_an_engine(function: Any) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


async def _answer(function: Any, *arguments: Any) -> Any:
    answer = function(*arguments)
    return await answer if inspect.isawaitable(answer) else answer


def _not_an_application(target: str) -> HoldfastError:
    return HoldfastError(
        f"{target!r} is neither an Engine nor a function that answers or configures one.",
        code="APP_INVALID",
        hint="See `holdfast docs cli` for the three forms.",
    )
