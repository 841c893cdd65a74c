"""The middleware of an engine in its order: the overridden hooks, and how they are called.

The first that was used is the outermost. A hook that can change the outcome is called in place; a notification is
called under a guard, so that none of its exceptions, and no time it takes, harms the engine or another hook.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.runtime.hooks.guard import guarded
from holdfast.runtime.hooks.middleware import Middleware, overrides
from holdfast.runtime.hooks.notices import FlowContext, Notice, lacks_error, notices, recall_error
from holdfast.runtime.worker.context import Context, NotBegun
from holdfast.runtime.worker.handlers import DoNotRetry

if TYPE_CHECKING:
    from holdfast.runtime.commit.batch import Plan

log = logger("holdfast.hooks")

PATIENCE: Final = 10.0  # seconds a hook that is merely told may take
MOST_UNTOLD: Final = 10_000
LONGEST: Final = 366 * 86_400.0  # seconds a call can be made to wait at once
SAY: Final = ("flow_starting", "admit", "step")
ON_CALLS: Final = ("step", "step_started", "step_completed", "step_failed")
ON_FLOWS: Final = (
    "flow_started", "flow_completed", "flow_failed", "flow_cancelled", "flow_aborted", "flow_suspended",
    "flow_resumed", "rollback_started", "rollback_completed",
)  # fmt: skip
OUTWARD: Final = frozenset({"flow_completed", "flow_failed", "flow_cancelled", "flow_aborted", "rollback_completed"})
ALL: Final = (*SAY, *ON_CALLS[1:], "step_postponed", *ON_FLOWS)

Decode = Callable[[], Any]
Run = Callable[[], Awaitable[Any]]
Hook = Callable[..., Awaitable[Any]]
ReadError = Callable[[str, bytes], Awaitable[Any]]  # the last error of an organisation's instance


class HookMisused(DoNotRetry):
    """A `step` hook did not call what it is around exactly once."""

    code = "HOOK_MISUSED"


class Layer(NamedTuple):
    """The overridden hooks of one middleware around a call."""

    name: str
    around: Hook | None
    started: Hook | None
    completed: Hook | None
    failed: Hook | None

    @classmethod
    def of(cls, middleware: Middleware) -> Layer:
        hooks = (getattr(middleware, hook) if overrides(middleware, hook) else None for hook in ON_CALLS)
        return cls(type(middleware).__name__, *hooks)


class Hooks:
    """Hooks of an engine. `calls`, `gates`, `flows` and `starts` are empty unless overridden: the hot path checks only
    that.
    """

    def __init__(self) -> None:
        self.middleware: tuple[Middleware, ...] = ()
        self.calls: tuple[Layer, ...] = ()
        self.gates: tuple[Middleware, ...] = ()
        self.flows: tuple[Middleware, ...] = ()
        self.starts: tuple[Middleware, ...] = ()
        self.failures = 0
        self.untold = 0  # notices that were dropped, because hooks were too slow for them
        self.read_error: ReadError = _nobody_knows
        self._waiting: deque[Notice] = deque()
        self._teller: asyncio.Task[None] | None = None

    def use(self, added: tuple[Middleware, ...]) -> None:
        for middleware in added:
            _check(middleware)
        self.middleware = (*self.middleware, *added)
        self.calls = tuple(map(Layer.of, self._having(*ON_CALLS)))
        self.gates = self._having("admit")
        self.flows = self._having(*ON_FLOWS)
        self.starts = self._having("flow_starting")

    def _having(self, *hooks: str) -> tuple[Middleware, ...]:
        return tuple(m for m in self.middleware if any(overrides(m, hook) for hook in hooks))

    # --- those that have a say ---------------------------------------------------------------------------------------

    async def starting(self, flow: str, decode: Decode) -> None:
        for middleware in self.starts:
            await middleware.flow_starting(flow, decode())

    async def admit(self, context: Context) -> float:
        """Ask each gate; return the first wait in seconds, or 0. Gates behind the first wait are not asked."""
        for middleware in self.gates:
            seconds = await middleware.admit(context)
            if seconds is not None and seconds > 0:
                for told in self._having("step_postponed"):
                    await self._tell(told.step_postponed, context, seconds)
                return min(float(seconds), LONGEST)
        return 0.0

    async def call(self, context: Context, decode: Decode, run: Run) -> Any:
        """The handler within all of its layers. Each is given an input of its own: what it does to it stays there."""
        layers = iter(self.calls)

        async def inwards() -> Any:
            layer = next(layers, None)
            return await (run() if layer is None else self._within(layer, context, decode, inwards))

        return await inwards()

    async def _within(self, layer: Layer, context: Context, decode: Decode, inside: Run) -> Any:
        if layer.started is not None:
            await self._tell(layer.started, context, decode())
        try:
            if layer.around is None:
                value = await inside()
            else:
                outcome = _Outcome(inside)
                await layer.around(context, decode(), outcome.once)
                value = outcome.answer(layer.name)
        except (KeyboardInterrupt, GeneratorExit, NotBegun):
            raise
        except BaseException as failure:
            if layer.failed is not None:
                await self._tell(layer.failed, context, failure)
            raise
        if layer.completed is not None:
            await self._tell(layer.completed, context, value)
        return value

    # --- those that are told -----------------------------------------------------------------------------------------

    async def _tell(self, hook: Hook, *about: Any) -> None:
        with guarded(partial(self._failed, hook)):
            async with asyncio.timeout(PATIENCE):
                await hook(*about)

    def _failed(self, hook: Hook) -> None:
        self.failures += 1
        log.exception("The hook %s failed", getattr(hook, "__qualname__", hook))

    def committed(self, plan: Plan) -> None:
        """Gather the notices of a commit; a task of its own delivers them."""
        try:
            self._waiting.extend(notices(plan))
        except Exception:
            self.failures += 1
            log.exception("The notices of a commit could not be gathered for hooks")
        while len(self._waiting) > MOST_UNTOLD:
            self._drop_oldest()
        if self._waiting and self._teller is None:
            self._teller = asyncio.create_task(self._tell_all(), name="holdfast-hooks")

    def _drop_oldest(self) -> None:
        self._waiting.popleft()
        if self.untold % MOST_UNTOLD == 0:
            log.error("Hooks of flows are too slow: changes are dropped from now on, the oldest first")
        self.untold += 1

    async def _tell_all(self) -> None:
        try:
            while self._waiting:
                hook, context = self._waiting.popleft()
                listening = [m for m in self.flows if overrides(m, hook)]
                if listening and lacks_error(context):
                    await self._recall_error(context)
                for middleware in reversed(listening) if hook in OUTWARD else listening:
                    await self._tell(getattr(middleware, hook), context)
        finally:
            self._teller = None

    async def _recall_error(self, context: FlowContext) -> None:
        """Add the last error from the database; without one, the notice carries the known fields only."""
        try:
            async with asyncio.timeout(PATIENCE):
                recall_error(context, await self.read_error(context.org, context.instance_id.bytes))
        except Exception:
            self.failures += 1
            log.exception("The error of %s could not be read for hooks", context.instance)

    async def told(self) -> None:
        """Wait until the notices of every commit so far are delivered."""
        while self._teller is not None:
            await asyncio.wait([self._teller])

    async def close(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await self.told()
        except TimeoutError:
            log.error("Left %d notices undelivered: their hooks did not return", len(self._waiting))
            self._waiting.clear()
            if self._teller is not None:
                self._teller.cancel()


class _Outcome:
    """Outcome of the one call inside a `step` hook."""

    __slots__ = ("_failure", "_inside", "_value", "calls")

    def __init__(self, inside: Run) -> None:
        self._inside = inside
        self._value: Any = None
        self._failure: BaseException | None = None
        self.calls = 0

    async def once(self) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise HookMisused("A step may be called once per attempt, and a hook called it twice.")
        try:
            self._value = await self._inside()
        except BaseException as failure:
            self._failure = failure
            raise
        return self._value

    def answer(self, name: str) -> Any:
        """Return or raise the call's own outcome, whatever the hook made of it; refuse a hook that did not call exactly
        once.
        """
        if self._failure is not None:
            raise self._failure
        if self.calls != 1:
            raise HookMisused(f"{name}.step must await its call once, and did so {self.calls} times.")
        return self._value


async def _nobody_knows(org: str, instance: bytes) -> None:
    """Return no error: the reader while no engine is open."""


def _check(middleware: Any) -> None:
    if not isinstance(middleware, Middleware):
        raise HoldfastError(
            f"{middleware!r} is no middleware.",
            code="MIDDLEWARE_INVALID",
            hint="Pass an object of a subclass of holdfast.Middleware.",
        )
    for hook in ALL:
        if not iscoroutinefunction(getattr(middleware, hook)):
            raise HoldfastError(
                f"{type(middleware).__name__}.{hook} is not asynchronous.",
                code="MIDDLEWARE_INVALID",
                hint=f"Write it as `async def {hook}(…)`.",
            )
