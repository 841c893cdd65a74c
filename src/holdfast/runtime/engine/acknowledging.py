"""Answers of consumers to facts: a commit of the instance, or a note on the delivery that closes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from holdfast.core.machine.acks import DELIVERED, FAILED, PROCESSED
from holdfast.core.model.ack_handles import AckAddress, decode_ack, unknown_ack
from holdfast.core.model.signals import Acknowledged, Actor, Triggered
from holdfast.errors import Conflict, Refused
from holdfast.runtime.commit.items import Item
from holdfast.runtime.consumers.events import Postpone
from holdfast.runtime.consumers.receiving import unknown_consumer
from holdfast.runtime.consumers.registering import take_number
from holdfast.runtime.engine.consuming import Consuming
from holdfast.runtime.machines.triggers import TriggerResult, result_of, take_event, take_raw
from holdfast.runtime.validation import check_text, take_names, take_utc
from holdfast.store.consumers import find_taker

RETRY: Final = "retry"
ANSWERS: Final = (DELIVERED, PROCESSED, FAILED, RETRY)
VERDICTS: Final = ("success", "failure")


class Acknowledging(Consuming):
    async def ack(
        self,
        environment: str,
        consumer: str,
        ack: str,
        outcome: str,
        *,
        message: str | None = None,
        verdict: str | None = None,
        then: tuple[str | int, Any] | None = None,
        at: datetime | None = None,
        delay: float | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
        conn: Any = None,
    ) -> TriggerResult | None:
        """Answer a fact: delivered, processed, failed with a message, or retry at a moment or after a delay in seconds.

        `verdict` is a gate's. `then` is the next event: it is decided in the same commit, and its answer is returned.
        A late or repeated answer changes nothing. With `conn` a processed or failed counts if your transaction commits;
        a fact that was answered before is a conflict there, so that its work is not committed twice.
        """
        address = decode_ack(ack)
        _check(outcome, verdict, then, at, delay, in_transaction=conn is not None)
        for text, what in ((environment, "environment"), (consumer, "consumer"), (message, "message"), (by, "actor")):
            check_text(text, what)
        following = None if then is None else Triggered(take_event(then[0]), take_raw(then[1], then[0]))
        held = take_names(capabilities, "capability")
        if outcome in (DELIVERED, RETRY):
            await self.settle_directly(environment, consumer, ack, outcome, wish=_wish(at, delay, message))
            return None
        if conn is not None:
            there = None if following is None else (str(following.event), _as_text(following.raw))
            is_new = await self._borrowed.ack(
                conn, environment, consumer, ack, outcome, message=message, verdict=verdict, then=there, by=by
            )
            if not is_new:
                raise _repeated(consumer)
            return None
        id = await self._taker(environment, consumer, ack, address)
        signal = Acknowledged(address.fact, address.at, id, outcome, message, verdict, following)
        item = Item(address.instance, signal, Actor(by or consumer, held))
        if following is not None:
            item.receipt = f"then:{UUID(bytes=address.fact)}:{UUID(bytes=id)}"
        told = await self.committer.apply(item)
        self._announce()
        return None if told.answer is None else result_of(told.answer)

    async def _taker(self, environment: str, name: str, ack: str, fact: AckAddress) -> bytes:
        """Find the consumer that was given a fact. Any other fact, of another organisation's, is none."""
        found = await find_taker(self._opened(), self.org, environment, name, fact)
        if found is None:
            raise unknown_consumer(environment, name)
        id, was_given = found
        if not was_given:
            raise unknown_ack(ack)
        return id


def _wish(at: datetime | None, delay: float | None, message: str | None) -> Postpone | None:
    """The time its consumer wants a fact again; None: that of the engine."""
    if at is None and delay is None:
        return None
    return Postpone(at=take_utc(at, "at"), delay=delay and take_number(delay, "delay", 0.0), message=message)


def _repeated(consumer: str) -> Conflict:
    return Conflict(
        f"The consumer {consumer!r} has answered this fact before.",
        code="ACK_REPEATED",
        hint="Roll your transaction back: its work is done already.",
    )


def _check(
    outcome: Any,
    verdict: str | None,
    then: tuple[str | int, Any] | None,
    at: datetime | None,
    delay: float | None,
    *,
    in_transaction: bool,
) -> None:
    if outcome not in ANSWERS:
        raise Refused(
            f"There is no outcome {str(outcome)[:40]!r}.", code="OUTCOME_UNKNOWN_NAME", hint=f"One of {ANSWERS}."
        )
    if verdict not in (None, *VERDICTS):
        raise Refused(f"There is no verdict {verdict!r}.", code="VERDICT_UNKNOWN", hint=f"One of {VERDICTS}.")
    closes = outcome in (PROCESSED, FAILED)
    if not closes and (verdict is not None or then is not None or in_transaction):
        raise Refused(
            f"A fact that is answered {outcome!r} stays open.",
            code="OUTCOME_INVALID",
            hint="A verdict, a next event and a transaction of your own belong to processed or failed.",
        )
    if outcome != RETRY and (at is not None or delay is not None):
        raise Refused(f"{outcome!r} names no moment.", code="OUTCOME_INVALID", hint="Answer retry, or leave it out.")


def _as_text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()
