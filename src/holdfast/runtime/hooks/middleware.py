"""The base of all middleware: every hook there is, doing nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.runtime.hooks.notices import FlowContext
from holdfast.runtime.worker.context import Context

Call = Callable[[], Awaitable[Any]]


class Middleware:
    """Base class of hooks. Override the ones you need; a hook that is not overridden costs nothing.

    Three hooks can change the outcome: `flow_starting`, `admit` and `step`. Their exceptions count. All others are
    notifications; their exceptions are logged and counted, and have no other effect.
    """

    # --- a flow ----------------------------------------------------------------------------------------------------

    async def flow_starting(self, flow: str, input: Any) -> None:
        """Check a start before it is stored, in the process that asks for it. Raise to refuse it: then no instance is
        stored.
        """

    async def flow_started(self, ctx: FlowContext) -> None:
        """The first step of an instance has been opened."""

    async def flow_completed(self, ctx: FlowContext) -> None: ...

    async def flow_failed(self, ctx: FlowContext) -> None: ...

    async def flow_cancelled(self, ctx: FlowContext) -> None: ...

    async def flow_aborted(self, ctx: FlowContext) -> None: ...

    async def flow_suspended(self, ctx: FlowContext) -> None:
        """Notification: the instance waits for an operator; `ctx.status` is `suspended` or `dlq`."""

    async def flow_resumed(self, ctx: FlowContext) -> None: ...

    async def rollback_started(self, ctx: FlowContext) -> None: ...

    async def rollback_completed(self, ctx: FlowContext) -> None:
        """Notification: the last compensation has ended; the end of the instance follows."""

    # --- a call of a step ------------------------------------------------------------------------------------------

    async def admit(self, ctx: Context) -> float | None:
        """Return the wait of this call in seconds, or None. A call that waits goes back to the queue and is not
        counted.
        """
        return None

    async def step(self, ctx: Context, data: Any, call: Call) -> None:
        """Wrap the call: `await call()` runs the inner layers and returns the handler's answer.

        Raise instead and the call has failed. The input, the answer and a failure cannot be changed from here.
        """
        await call()

    async def step_started(self, ctx: Context, data: Any) -> None: ...

    async def step_completed(self, ctx: Context, output: Any) -> None: ...

    async def step_failed(self, ctx: Context, failure: BaseException) -> None:
        """Notification: this call failed; another may follow. With a `CancelledError` the handler stopped on
        request.
        """

    async def step_postponed(self, ctx: Context, seconds: float) -> None:
        """Notification: an `admit` made the call wait."""


def overrides(middleware: Middleware, hook: str) -> bool:
    return getattr(type(middleware), hook) is not getattr(Middleware, hook)
