"""The verb that runs a flow like a function: start, wait for the end, return the result."""

from __future__ import annotations

from typing import Any

from holdfast.core.model.ids import FORWARD
from holdfast.core.model.status import InstanceStatus
from holdfast.errors import InstanceFailed
from holdfast.runtime.engine.starting import Starting
from holdfast.store.reads.instances import Instance, Step


class Running(Starting):
    async def run(
        self,
        flow: str,
        input: Any = None,
        *,
        key: str | None = None,
        version: int | None = None,
        business_key: str | None = None,
        attributes: dict[str, Any] | None = None,
        by: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Start an instance, wait for its end and return its result.

        Any end but completion raises `InstanceFailed`, with the step that failed and its error. A worker has to run,
        here or in another process. A `TimeoutError` after `timeout` seconds leaves the instance running; the same `key`
        waits for it again.
        """
        started = await self.start(
            flow, input, key=key, version=version, business_key=business_key, attributes=attributes, by=by
        )
        ended = await self.wait(started.id, timeout)
        if ended.status == InstanceStatus.COMPLETED:
            return ended.data
        raise _failure(ended, await self.steps(ended.id))


def _failure(ended: Instance, steps: list[Step]) -> InstanceFailed:
    """Name the step that failed last before the end; a cancel or a timeout of the instance need not have one."""
    failed = next((step for step in reversed(steps) if step.kind == FORWARD and step.failed), None)
    named = f"Instance {ended.id} of flow {ended.flow!r} is {ended.status}"
    if failed is None:
        return InstanceFailed(f"{named}: {ended.reason}." if ended.reason else f"{named}.", instance=ended)
    error: dict[str, Any] = failed.error or {}
    told = ": ".join(str(error[part]) for part in ("code", "message") if error.get(part))
    return InstanceFailed(
        f"{named}: step {failed.name!r} failed{f' with {told}' if told else ''}.",
        instance=ended,
        step=failed.name,
        error=failed.error,
    )
