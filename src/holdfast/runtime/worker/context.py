"""Context of one call, as its handler sees it.

All but a few properties are in the job. `input`, `results`, `key`, `business_key` and `attributes` are read from the
database when the call asks for the first of them, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from hashlib import sha256
from typing import Any, Final, Self, cast
from uuid import UUID

import msgspec

from holdfast.core.model.ids import COMPENSATE, FORWARD, token_id
from holdfast.core.model.program import Place
from holdfast.logs import logger
from holdfast.payloads import canonical
from holdfast.payloads.plain import HASHED_INTEGERS
from holdfast.runtime.worker.background import Reader, Results
from holdfast.store.reads.background import Background

_LOGGER: Final = logger("holdfast.handlers")


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
    withheld: str = ""  # why it is not to begin if it has not
    unbegun: bool = False  # it was not called: its lease had gone, or it was withheld
    interrupted: bool = False  # the task that runs it was cancelled to tell it
    thread: Future[Any] | None = None  # where a plain function runs, or waits for a thread
    answered: Mapping[str, bytes] | None = None  # by the steps before it in the transaction it runs in


class NotBegun(BaseException):
    """A call that is not made. No failure: hooks that catch those do not see it."""


class Context:
    """The step a handler runs for. `conn` is the engine's transaction, in operations that run inside it."""

    __slots__ = ("_background", "_is_lost", "_job", "_reader", "conn")

    def __init__(self, job: Job, is_lost: Callable[[Job], bool], reader: Reader, conn: Any = None) -> None:
        self._job = job
        self._is_lost = is_lost
        self._reader = reader
        self._background: Background | None = None
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
        """Name under which the handler is registered."""
        return self._job.place.node.handler or ""

    @property
    def token(self) -> str:
        return token_id(self._job.path, self._job.hop)

    @property
    def attempt(self) -> int:
        """Number of this call: 1 for the first, 2 for the second …"""
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
        """The W3C `traceparent` given at the start of the instance, if any."""
        return self._job.trace

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger that adds the instance and the step to every line."""
        return logging.LoggerAdapter(_LOGGER, {"instance": self.instance, "step": self.step, "flow": self.flow})

    @property
    def idempotency_key(self) -> str:
        """Pass it to the outside world: the same on every call of this step with this input, new for new input."""
        digest = sha256(canonical(_exact(msgspec.json.decode(self._job.input)))).hexdigest()
        kind = COMPENSATE if self._job.place.traits.undoes else FORWARD
        parts = f"{self.instance_id}|{self.step}|{self.token}|{kind}|{digest}"
        return sha256(parts.encode()).hexdigest()

    # --- about the instance, read when a call asks -----------------------------------------------------------------

    def load(self) -> Coroutine[Any, Any, Self]:
        """Read `input`, `results`, `key`, `business_key` and `attributes`, once, and answer the context itself.

        An async handler awaits it before it uses one of them; a plain function needs no `load`."""
        self._reader.check_awaitable()
        return self._load()

    async def _load(self) -> Self:
        if self._background is None:
            self._background = await self._reader.read(self._job.org, self._job.instance)
        return self

    @property
    def _known(self) -> Background:
        if self._background is None:
            self._background = self._reader.read_from_thread(self._job.org, self._job.instance)
        return self._background

    @property
    def input(self) -> Any:
        """The input of the instance; every look gives a copy."""
        return msgspec.json.decode(self._known.input)

    @property
    def results(self) -> Results:
        """The results of completed steps, by step name: the newest of each. A step that was taken back is not
        among them, nor is one that lies more than 1,000 visits back."""
        return Results({**self._known.results, **(self._job.answered or {})})

    @property
    def key(self) -> str | None:
        """The idempotency key of the start."""
        return self._known.key

    @property
    def business_key(self) -> str | None:
        return self._known.business_key

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the instance, by which it is found; every look gives a copy."""
        return msgspec.json.decode(self._known.attributes or b"{}")

    # --- whether to go on ------------------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        """True when another worker may run this step by now: stop, the result would be refused."""
        return self._is_lost(self._job)

    @property
    def cancelled(self) -> bool:
        """Stop request: when True, clean up and return. The result is still recorded if the instance was cancelled.

        An async handler gets a CancelledError as well, a plain function must ask.
        """
        return self._job.told

    def heartbeat(self) -> bool:
        """Go on? The process keeps the lease; a long handler asks now and then and ends when the answer is no."""
        return not (self._job.told or self._is_lost(self._job))


def check(job: Job, is_lost: Callable[[Job], bool]) -> None:
    """Ask immediately before a call, whatever the job has waited for: one that is not begun is not counted."""
    if job.withheld or is_lost(job):
        job.unbegun = True
        raise NotBegun


def check_again(context: Context) -> None:
    """Check the lease again, before a handler calls another service."""
    check(context._job, context._is_lost)  # pyright: ignore[reportPrivateUsage]  # handlers shall not see them


def job_of(context: Context) -> Job:
    """The job behind a context, for engine code that needs more than a handler may know."""
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
