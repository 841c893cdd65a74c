"""Kinds of effects by name: built in, brought by other packages, or a function of the application.

An installed package offers a kind through the entry point group `holdfast.effects`: the entry's name is the kind's, the
object behind it is a function `(ctx, data)`, or a class whose `deliver(delivery)` is awaited.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, cast

from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.runtime.effects.delivery import Delivered, Delivery, EffectFailed
from holdfast.runtime.effects.email import EmailKind
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.effects.webhook import WebhookKind
from holdfast.runtime.validation import check_text
from holdfast.runtime.worker.handlers import DoNotRetry, Function, Handler, Registry

log = logger("holdfast.effects")

GROUP: Final = "holdfast.effects"


class Kind(Protocol):
    """Deliverer of effects of one kind. An exception other than `EffectFailed` counts as worth another attempt."""

    async def deliver(self, delivery: Delivery) -> Delivered: ...


class FunctionKind:
    """A function of the application: async on the loop, plain in a thread; its result is the node's output."""

    def __init__(self, handler: Handler, threads: ThreadPoolExecutor) -> None:
        self._handler = handler
        self._threads = threads

    async def deliver(self, delivery: Delivery) -> Delivered:
        handler = self._handler
        try:
            data = delivery.data if handler.convert is None else handler.convert(delivery.data)
            if handler.is_async:
                return Delivered(await handler.function(delivery, data))
            loop = asyncio.get_running_loop()
            run = partial(contextvars.copy_context().run, partial(_run_plain, handler, delivery, data))
            return Delivered(await loop.run_in_executor(self._threads, run))
        except DoNotRetry as failure:
            raise EffectFailed("EFFECT_GIVEN_UP", str(failure) or repr(failure), final=True) from failure


def _run_plain(handler: Handler, delivery: Delivery, data: Any) -> Any:
    """Run the function in its thread, after a possible wait for a free one."""
    delivery.check()
    return handler.function(delivery, data)


class Kinds:
    """Registry of effect kinds: the application's own first, then installed ones, then the built-in ones."""

    def __init__(self) -> None:
        self._own: dict[str, Kind] = {}
        self._functions = Registry()

    def register(self, name: str, kind: Function | Kind) -> None:
        if not _is_kind(kind):
            self._functions.register(name, cast(Function, kind))
            return
        if not name or self._own.get(name, kind) is not kind:
            raise HoldfastError(
                f"The effect kind {name!r} is already registered, or has no name.",
                code="EFFECT_KIND_DUPLICATE",
                hint="Give it another name, or register it once.",
            )
        check_text(name, "name of an effect kind")
        self._own[name] = cast(Kind, kind)

    def open(self, options: EffectOptions) -> OpenKinds:
        return OpenKinds(options, self._own, self._functions)


class OpenKinds:
    """The kinds of a running worker, with what they need while they run."""

    def __init__(self, options: EffectOptions, own: dict[str, Kind], functions: Registry) -> None:
        self._threads = ThreadPoolExecutor(
            max_workers=min(options.concurrency, 64), thread_name_prefix="holdfast-handler-effect"
        )
        self._webhook = WebhookKind(options)
        registry = Registry()
        self.by_name: dict[str, Kind] = {"webhook": self._webhook, "email": EmailKind(options, self._threads)}
        for entry in entry_points(group=GROUP):
            installed = _load(entry, registry, self._threads)
            if installed is not None:
                self.by_name[entry.name] = installed
        self.by_name.update({n: FunctionKind(functions.require(n), self._threads) for n in functions.names()})
        self.by_name.update(own)

    async def close(self) -> None:
        await self._webhook.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_kind(candidate: object) -> bool:
    return callable(getattr(candidate, "deliver", None)) and not inspect.isclass(candidate)


def _load(entry: EntryPoint, registry: Registry, threads: ThreadPoolExecutor) -> Kind | None:
    """A package that cannot be loaded does not keep the others from working; its effects stay in the outbox."""
    try:
        found: Any = entry.load()
        if inspect.isclass(found):
            found = cast(Callable[[], Any], found)()
        if _is_kind(found):
            return cast(Kind, found)
        registry.register(entry.name, found)
        return FunctionKind(registry.require(entry.name), threads)
    except Exception:
        log.exception(
            "The effect kind %r of %r cannot be used; its effects wait in the outbox", entry.name, entry.value
        )
        return None
