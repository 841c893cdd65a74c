"""Values a step takes as options and several steps may share: `Retry` and `Undo`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal

from holdfast.doors.saga.known_options import only_known_options
from holdfast.doors.saga.model import Function

Handler = str | Function
Backoff = Literal["fixed", "linear", "exponential"]
Metadata = Mapping[str, Any]


@only_known_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The number of attempts of a step, and the wait between two of them: `Retry(attempts=3, delay=1)`.

    A field left out is the default of the step: the `attempts` of the flow, or 5 of webhooks and
    mails."""

    attempts: int | None = None  # all of them, the first included; below 1 means 1
    delay: float | None = None  # seconds before the second attempt
    backoff: Backoff | None = None
    max_delay: float | None = None
    jitter: float | None = None


STEP_RETRY: Final = Retry(delay=0.0, backoff="fixed", max_delay=3600.0, jitter=0.0)
# Webhooks and mails: the policy the outbox has by itself.
SENT_RETRY: Final = Retry(attempts=5, delay=30.0, backoff="exponential", max_delay=3600.0, jitter=0.5)


@only_known_options
@dataclass(frozen=True, slots=True)
class Undo:
    """The compensation of a step, with options: `Undo(refund, retry=Retry(attempts=5))`."""

    handler: Handler
    _: KW_ONLY
    name: str | None = None  # None: the handler's own name
    retry: Retry | None = None
    timeout: float | None = None
    idempotent: bool = True
    priority: int = 50
    queue: str | None = None
    metadata: Metadata | None = None
