"""Events of this engine's consumers, and the moments their answers name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.consumer.answers import Answer, Postpone, Trigger, Verdict
from holdfast.consumer.events import Event
from holdfast.core.model.ack_handles import encode_ack
from holdfast.core.model.timestamps import from_datetime, seconds
from holdfast.errors import Refused
from holdfast.store.deliveries import Claimed, DeliveryKey

__all__ = ["Answer", "ConsumerEvent", "Postpone", "PresentEntry", "Trigger", "Verdict", "moment_of"]

PresentEntry = Callable[[str, bytes], Awaitable[int | None]]  # organisation, instance → number of its entry


class ConsumerEvent(Event):
    """One fact for one consumer, on one attempt, with the engine at hand."""

    def __init__(self, claimed: Claimed, environment: str, consumer: str, present: PresentEntry) -> None:
        super().__init__(
            claimed.body, encode_ack(claimed.key.fact), environment=environment, consumer=consumer,
            attempt=claimed.attempt, max_attempts=claimed.most,
        )  # fmt: skip
        self._claimed = claimed
        self._present = present

    @property
    def key(self) -> DeliveryKey:
        return self._claimed.key

    async def is_current(self) -> bool:
        """Check that the instance is still at the entry the fact is about."""
        return await self._present(self._claimed.org, self._claimed.key.fact.instance) == self.lifecycle


LATEST: Final = 36_525 * 86_400 * 1_000_000  # microseconds from now


def moment_of(wish: Postpone, now: int) -> int:
    """The moment of a postponement; nothing is put off for more than a hundred years."""
    latest = now + LATEST
    if wish.at is not None:
        due = from_datetime(wish.at)
    elif wish.delay is not None and wish.delay < LATEST / 1_000_000:
        due = now + seconds(max(0.0, wish.delay))
    else:
        due = latest + 1
    if due > latest:
        raise Refused(
            "A fact is put off for a hundred years at most.", code="MOMENT_INVALID", hint="Name an earlier moment."
        )
    return due
