"""One attempt to deliver one effect, and the two ways it can end."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.compiler.graph import Retry
from holdfast.core.retry import delay_before
from holdfast.core.signals import Failure
from holdfast.errors import PayloadError
from holdfast.runtime.edge import take_payload
from holdfast.runtime.failures import MOST_MESSAGE, MOST_NAME
from holdfast.store.effects import ClaimedEffect, FinishedEffect

DEFAULT_RETRY: Final = Retry(calls=5, delay=30.0, backoff="exponential", max_delay=3600.0, jitter=0.5)
DEFAULT_TIMEOUT: Final = 30.0  # seconds for a whole attempt


class Delivery(msgspec.Struct, frozen=True):
    """What a kind is asked to deliver. `key` is the same on every attempt: the receiver tells repetitions by it."""

    id: str
    instance: str
    org: str
    token: str
    kind: str
    target: str
    key: str
    attempt: int
    config: dict[str, Any]
    data: Any
    created_at: int  # microseconds of the database's clock: the same on every attempt
    timeout: float
    trace: str | None = None


class Delivered(msgspec.Struct, frozen=True):
    """It worked. `output` is what a node that waits continues with."""

    output: Any = None
    evidence: dict[str, Any] = {}


class EffectFailed(Exception):
    """It did not. `final`: another attempt would not help."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        final: bool = False,
        evidence: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = clean(code, MOST_NAME)
        self.message = clean(message, MOST_MESSAGE)
        self.final = final
        self.evidence = evidence or {}
        self.retry_after = retry_after


class Asked(msgspec.Struct):
    """The payload of an effect row."""

    config: dict[str, Any] = {}
    data: Any = None
    retry: Retry = DEFAULT_RETRY
    timeout: float = DEFAULT_TIMEOUT


_decode = msgspec.json.Decoder(Asked).decode


def clean(text: str, limit: int) -> str:
    """Text the database can store, and a log can show."""
    return text[:limit].replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


def read_payload(claimed: ClaimedEffect) -> Asked:
    return _decode(claimed.payload)


def delivered(claimed: ClaimedEffect, result: Delivered) -> FinishedEffect:
    output = None if result.output is None else take_payload(result.output, f"the result of {claimed.kind!r}")
    return FinishedEffect(
        claimed.row, claimed.worker, "completed", 0, _evidence(claimed, result.evidence), None, output
    )


def failed(claimed: ClaimedEffect, failure: EffectFailed, retry: Retry = DEFAULT_RETRY) -> FinishedEffect:
    """Another attempt after a pause, or a dead letter when none is left or none would help."""
    error = msgspec.json.encode(Failure(failure.code, failure.message))
    try:
        evidence = _evidence(claimed, failure.evidence)
    except PayloadError as unfit:  # the failure is what matters
        evidence = _evidence(claimed, {"unfit": unfit.code})
    if failure.final or claimed.attempts >= claimed.max_attempts:
        return FinishedEffect(claimed.row, claimed.worker, "dead_letter", 0, evidence, error)
    delay = delay_before(retry, claimed.attempts, claimed.row.id)
    if failure.retry_after is not None:
        delay = max(delay, round(min(failure.retry_after, retry.max_delay) * 1_000_000))
    return FinishedEffect(claimed.row, claimed.worker, "failed", delay, evidence, error)


def interrupted(claimed: ClaimedEffect) -> FinishedEffect:
    """Cut off by a worker that leaves: somebody else may begin at once."""
    error = Failure("EFFECT_INTERRUPTED", "The worker left before the delivery was done.")
    return FinishedEffect(claimed.row, claimed.worker, "failed", 0, None, msgspec.json.encode(error))


def worn_out(claimed: ClaimedEffect, retry: Retry) -> FinishedEffect:
    """Every attempt it may have was begun and the last one never came back."""
    once = retry.calls == 1
    message = "The worker was lost while it delivered and no attempt is left."
    if once:
        message = "The worker was lost while it delivered; whether the target was reached is unknown."
    return failed(claimed, EffectFailed("OUTCOME_UNKNOWN" if once else "LEASE_LOST", message, final=True))


def _evidence(claimed: ClaimedEffect, given: dict[str, Any]) -> bytes:
    return take_payload({"attempt": claimed.attempts, **given}, f"the evidence of {claimed.kind!r}")
