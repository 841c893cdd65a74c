"""What a handler is told about the call it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from hashlib import sha256
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from holdfast.core.ids import COMPENSATE, FORWARD, token_id
from holdfast.core.program import Place
from holdfast.payloads import canonical
from holdfast.payloads.plain import HASHED_INTEGERS

_LOGGER: Final = logging.getLogger("holdfast.handlers")


class Job(msgspec.Struct, gc=False):
    """One call of one handler, leased to this worker."""

    instance: bytes
    org: str
    flow: str
    path: str
    hop: int
    step: bytes
    fence: int
    calls: int
    place: Place
    input: bytes
    trace: str | None = None
    holder: bytes = b""  # the worker's incarnation it was leased to
    told: bool = False  # to stop: its step is not wanted any more
    interrupted: bool = False  # the task that runs it was cancelled to tell it
    thread: Future[Any] | None = None  # where a plain function runs, or waits for a thread


class Context:
    """The step a handler runs for. `conn` is the engine's transaction, in operations that run inside it."""

    __slots__ = ("_is_lost", "_job", "conn")

    def __init__(self, job: Job, is_lost: Callable[[Job], bool], conn: Any = None) -> None:
        self._job = job
        self._is_lost = is_lost
        self.conn = conn

    @property
    def instance_id(self) -> UUID:
        return UUID(bytes=self._job.instance)

    @property
    def instance(self) -> str:
        return str(self.instance_id)

    @property
    def step_id(self) -> UUID:
        return UUID(bytes=self._job.step)

    @property
    def step(self) -> str:
        """The name of the step."""
        return self._job.place.id

    node = step

    @property
    def handler(self) -> str:
        """The name the handler is registered under."""
        return self._job.place.node.handler or ""

    @property
    def token(self) -> str:
        return token_id(self._job.path, self._job.hop)

    @property
    def attempt(self) -> int:
        """1 on the first call, 2 on the second …"""
        return self._job.calls

    @property
    def flow(self) -> str:
        return self._job.flow

    @property
    def org(self) -> str:
        return self._job.org

    tenant = org

    @property
    def trace(self) -> str | None:
        """The W3C `traceparent` of whoever started the instance, if they traced it."""
        return self._job.trace

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Says with every line which instance and step it is about."""
        return logging.LoggerAdapter(_LOGGER, {"instance": self.instance, "step": self.step, "flow": self.flow})

    @property
    def idempotency_key(self) -> str:
        """Pass it to the outside world: the same on every call of this step with this input, new for new input."""
        digest = sha256(canonical(_exact(msgspec.json.decode(self._job.input)))).hexdigest()
        kind = COMPENSATE if self._job.place.node.kind == "compensation" else FORWARD
        parts = f"{self.instance_id}|{self.step}|{self.token}|{kind}|{digest}"
        return sha256(parts.encode()).hexdigest()

    @property
    def lost(self) -> bool:
        """True when another worker may run this step by now: stop, the result would be refused."""
        return self._is_lost(self._job)

    @property
    def cancelled(self) -> bool:
        """True once the step is not wanted any more: clean up and return; what is returned is still recorded if the
        instance was cancelled. An async handler gets a CancelledError as well, a plain function must ask."""
        return self._job.told

    def heartbeat(self) -> bool:
        """Go on? The process keeps the lease; a long handler asks now and then and ends when the answer is no."""
        return not (self._job.told or self._is_lost(self._job))


def job_of(context: Context) -> Job:
    """For those around a call who need more than its handler may know."""
    return context._job  # pyright: ignore[reportPrivateUsage]  # handlers shall not see it


def _exact(value: Any) -> Any:
    """Large integers as text: they may be stored, but canonical JSON would read two of them as one number."""
    if isinstance(value, int):
        return value if value in HASHED_INTEGERS else str(value)
    if isinstance(value, list):
        return [_exact(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
