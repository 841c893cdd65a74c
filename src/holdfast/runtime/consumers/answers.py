"""Acknowledgements: commits of their instances, or the update of a delivery that stays open."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from holdfast.core.model.signals import SYSTEM, Acknowledged, Actor, Triggered
from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.runtime.commit.committer import Committer
from holdfast.runtime.commit.items import Item
from holdfast.runtime.consumers.events import Answer, ConsumerEvent, Postpone, Trigger, Verdict, moment_of
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.runtime.effects.delivery import clean
from holdfast.runtime.machines.board import NoticeBoard
from holdfast.runtime.machines.triggers import take_event, take_raw
from holdfast.store import deliveries
from holdfast.store.deliveries import Claimed, DeliveryKey
from holdfast.store.pg.session import Session

log = logger("holdfast.consumers")

PROCESSED: Final = "processed"
FAILED: Final = "failed"
PATIENCE: Final = 30.0  # seconds an answer waits for an instance that others change
LONGEST_MESSAGE: Final = 2000


class Answers:
    """Store what consumers of this process, and those it sends to, have answered."""

    def __init__(
        self,
        committer: Committer,
        session: Callable[[], Session],
        board: NoticeBoard,
        options: ConsumerOptions,
        announce: Callable[[], None],
    ) -> None:
        self._committer = committer
        self._session = session
        self._board = board
        self.announce = announce
        self.pending = round(options.pending_resend * 1_000_000)
        self.delivered = round(options.delivered_resend * 1_000_000)

    async def close(self, key: DeliveryKey, outcome: str, by: str | None = None, message: str | None = None) -> None:
        """End a delivery without a word of its own: processed, failed, exhausted, expired or abandoned."""
        await self._commit(key, outcome, by, _stored(message))

    async def take(self, claimed: Claimed, consumer: str, answer: Answer) -> None:
        """Store the answer of a handler."""
        if isinstance(answer, Postpone):
            await self.postpone(claimed.key, answer)
            return
        verdict = answer if isinstance(answer, Verdict) else None
        then = verdict.then if verdict is not None else answer if isinstance(answer, Trigger) else None
        message = None if verdict is None else _stored(verdict.message)
        await self._commit(claimed.key, PROCESSED, consumer, message, verdict and verdict.word, then)

    async def postpone(self, key: DeliveryKey, wish: Postpone) -> bool:
        """Send a fact again at another moment; False where it is closed by now."""
        session = self._session()
        due = moment_of(wish, await deliveries.read_clock(session))
        return bool(await deliveries.postpone(session, [(key, due, _stored(wish.message))]))

    async def received(self, keys: Sequence[DeliveryKey]) -> None:
        """Note that consumers have received facts, and are at work on them."""
        await deliveries.mark_delivered(self._session(), keys, self.delivered)

    async def again(self, claimed: Claimed) -> None:
        """Send a fact again after the usual pause: its handler raised."""
        await deliveries.extend(self._session(), [claimed], self.pending)

    async def count_probe(self, claimed: Claimed) -> None:
        """Count the attempt of a probe, which has reached its consumer. Any other attempt was counted when it began."""
        if claimed.is_probe:
            await deliveries.count_probe(self._session(), claimed, self.pending)

    def report(self, event: ConsumerEvent, claimed: Claimed, failure: BaseException, *, again: bool) -> None:
        """Log the failure of a handler, and tell operators of it."""
        trace = "".join(traceback.format_exception(failure))
        self.failed(claimed, event.consumer, f"{type(failure).__name__}: {failure}", again=again, trace=trace)
        self._board.tell_error(
            "EVENT_HANDLER_ERROR",
            f"The handler of {event.consumer!r} failed: {type(failure).__name__}: {failure}",
            org=claimed.org,
            instance=UUID(event.instance).bytes,
            consumer=event.consumer,
            detail={
                "external_ref": event.external_ref, "ack_guid": str(event.ack_guid), "event": event.event,
                "attempt": event.attempt,
            },
        )  # fmt: skip

    def failed(
        self, claimed: Claimed, consumer: str, error: str, *, again: bool = True, trace: str | None = None
    ) -> None:
        """Log and count that a consumer failed on a fact."""
        next = (
            "nothing: it is sent once" if not claimed.needs_ack else "dead letter" if not again else self._next(claimed)
        )
        self._committer.incidents.fact_failed(claimed, consumer, error, next, trace)

    def _next(self, claimed: Claimed) -> str:
        if claimed.attempt >= claimed.most:
            return "dead letter, if it is not processed meanwhile"
        return f"retry: attempt {claimed.attempt + 1} of {claimed.most} in {self.pending / 1_000_000:g} s"

    def alarm(self, what: str, failure: BaseException) -> None:
        """Tell operators of a loop that failed and will be repeated."""
        self._board.tell_error("MONITOR_ERROR", f"{what} failed: {type(failure).__name__}: {failure}")

    async def _commit(
        self,
        key: DeliveryKey,
        outcome: str,
        by: str | None,
        message: str | None,
        verdict: str | None = None,
        then: Trigger | None = None,
    ) -> None:
        fact = key.fact
        following = None if then is None else Triggered(take_event(then.event), take_raw(then.payload, then.event))
        signal = Acknowledged(fact.fact, fact.at, key.consumer, outcome, message, verdict, following)
        item = Item(fact.instance, signal, SYSTEM if by is None else Actor(by))
        if following is not None:
            item.receipt = f"then:{UUID(bytes=fact.fact)}:{UUID(bytes=key.consumer)}"
        await self._committer.apply(item, PATIENCE)
        self.announce()

    async def try_close(self, key: DeliveryKey, outcome: str, by: str | None = None) -> bool:
        """End a delivery; False where that failed and will be tried again, because the row stays due."""
        try:
            await self.close(key, outcome, by)
        except HoldfastError as failure:
            log.warning("The delivery of %s could not be closed yet: %s", UUID(bytes=key.fact.fact), failure)
            return False
        return True


def _stored(message: str | None) -> str | None:
    return None if message is None else clean(message, LONGEST_MESSAGE) or "No message."
