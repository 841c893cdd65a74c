"""The base of all middleware: every hook there is, doing nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.runtime.context import Context
from holdfast.runtime.hooks.notices import FlowContext

Call = Callable[[], Awaitable[Any]]


class Middleware:
    """Override what you need; a hook that is not overridden costs nothing.

    Three hooks have a say: `flow_starting`, `admit` and `step`. What they raise counts. All others are told; what they
    raise is logged and counted, and nothing else comes of it.
    """

    # --- a flow ----------------------------------------------------------------------------------------------------

    async def flow_starting(self, flow: str, input: Any) -> None:
        """Before a start is stored, in the process that asks for it. Raise to refuse it: then nothing is stored."""

    async def flow_started(self, ctx: FlowContext) -> None:
        """The first step of an instance has been opened."""

    async def flow_completed(self, ctx: FlowContext) -> None: ...

    async def flow_failed(self, ctx: FlowContext) -> None: ...

    async def flow_cancelled(self, ctx: FlowContext) -> None: ...

    async def flow_aborted(self, ctx: FlowContext) -> None: ...

    async def flow_suspended(self, ctx: FlowContext) -> None:
        """It stands still until somebody acts: `ctx.status` is `suspended` or `dlq`."""

    async def flow_resumed(self, ctx: FlowContext) -> None: ...

    async def rollback_started(self, ctx: FlowContext) -> None: ...

    async def rollback_completed(self, ctx: FlowContext) -> None:
        """The last compensation is over; how the instance ended is told next."""

    # --- a call of a step ------------------------------------------------------------------------------------------

    async def admit(self, ctx: Context) -> float | None:
        """Seconds this call must wait, or nothing. A call that waits goes back to the queue and is not counted."""
        return None

    async def step(self, ctx: Context, data: Any, call: Call) -> None:
        """Around the call: `await call()` runs what is inside and gives the handler's answer.

        Raise instead and the call has failed. The input, the answer and a failure cannot be changed from here.
        """
        await call()

    async def step_started(self, ctx: Context, data: Any) -> None: ...

    async def step_completed(self, ctx: Context, output: Any) -> None: ...

    async def step_failed(self, ctx: Context, failure: BaseException) -> None:
        """This call failed; another may follow. A `CancelledError`: the handler was told to stop."""

    async def step_postponed(self, ctx: Context, seconds: float) -> None:
        """Somebody's `admit` made the call wait."""


def overrides(middleware: Middleware, hook: str) -> bool:
    return getattr(type(middleware), hook) is not getattr(Middleware, hook)
