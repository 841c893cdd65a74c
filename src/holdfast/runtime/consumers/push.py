"""Push: facts as signed webhooks, through the delivery of effects.

An answer of the consumer counts as an attempt. A consumer that cannot be reached is down: the attempt is given back,
and one fact at a time probes it until it answers again.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from enum import Enum
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.core.model.ack_handles import encode_ack
from holdfast.logs import logger
from holdfast.runtime.consumers.answers import FAILED, Answers
from holdfast.runtime.consumers.events import Postpone, Trigger, Verdict
from holdfast.runtime.effects.delivery import Delivery, EffectFailed
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.effects.webhook import WebhookKind
from holdfast.store.consumers import PushConsumer
from holdfast.store.deliveries import Claimed

log = logger("holdfast.consumers")

UNREACHED: Final = frozenset({"EFFECT_TIMEOUT", "EFFECT_UNREACHABLE", "EFFECT_TARGET_UNRESOLVED"})
AWAY: Final = frozenset({502, 503, 504})  # what stands before the consumer says that it is not there
FIELDS: Final = ("url", "secret", "signed", "headers")


class Push(Enum):
    """The outcome of one push."""

    REACHED = "reached"
    DOWN = "down"
    ELSEWHERE = "elsewhere"  # this process lacks what it takes; another may have it


class _Then(msgspec.Struct):
    event: str | int
    payload: Any = None


class _Answered(msgspec.Struct):
    """The body of a good answer. Anything else in it is the consumer's own."""

    outcome: str = "delivered"
    message: str | None = None
    verdict: str | None = None
    then: _Then | None = None
    at: datetime | None = None
    delay: float | None = None


class Pusher:
    def __init__(self, options: EffectOptions, answers: Answers, timeout: float) -> None:
        self._kind = WebhookKind(options)
        self._answers = answers
        self._timeout = timeout

    async def close(self) -> None:
        await self._kind.close()

    async def push(self, claimed: Claimed, consumer: PushConsumer) -> Push:
        """Send one fact and store what the answer says."""
        try:
            async with asyncio.timeout(self._timeout):
                delivered = await self._kind.deliver(_delivery(claimed, consumer, self._timeout))
        except TimeoutError:
            log.warning("The consumer %s cannot be reached: no answer within %g s", consumer.name, self._timeout)
            return Push.DOWN
        except EffectFailed as failure:
            if failure.elsewhere:
                log.warning("The consumer %s is left to another worker: %s", consumer.name, failure.message)
                return Push.ELSEWHERE
            if failure.code in UNREACHED or failure.evidence.get("status") in AWAY:
                log.warning("The consumer %s cannot be reached: %s", consumer.name, failure.message)
                return Push.DOWN
            await self._answers.count_probe(claimed)
            await self._answered_badly(claimed, consumer, failure)
            return Push.REACHED
        await self._answers.count_probe(claimed)
        await self._take(claimed, consumer, delivered.output)
        return Push.REACHED

    async def _answered_badly(self, claimed: Claimed, consumer: PushConsumer, failure: EffectFailed) -> None:
        self._answers.failed(claimed, consumer.name, f"{failure.code}: {failure.message}")
        if not claimed.needs_ack:
            await self._answers.try_close(claimed.key, "processed", consumer.name)
            return
        wait = Postpone(delay=self._answers.pending / 1_000_000, message=f"{failure.code}: {failure.message}")
        await self._answers.postpone(claimed.key, wait)

    async def _take(self, claimed: Claimed, consumer: PushConsumer, output: Any) -> None:
        answered = _read(output.get("body"))
        if not claimed.needs_ack:
            await self._answers.try_close(claimed.key, "processed", consumer.name)
        elif answered.outcome == "processed":
            then = None if answered.then is None else Trigger(answered.then.event, answered.then.payload)
            if answered.verdict in ("success", "failure"):
                verdict = Verdict(answered.verdict == "success", answered.message, then)
                await self._answers.take(claimed, consumer.name, verdict)
            else:
                await self._answers.take(claimed, consumer.name, then)
        elif answered.outcome == "failed":
            await self._answers.close(claimed.key, FAILED, consumer.name, answered.message or "failed")
        elif answered.outcome == "retry" and (answered.at is None) != (answered.delay is None):
            wish = Postpone(at=answered.at, delay=answered.delay, message=answered.message)
            await self._answers.postpone(claimed.key, wish)
        else:
            await self._answers.received([claimed.key])


def _read(body: Any) -> _Answered:
    """The answer in a body; one that is none of ours means no more than that the fact was received."""
    try:
        return msgspec.convert(body, _Answered)
    except msgspec.ValidationError:
        return _Answered()


def _delivery(claimed: Claimed, consumer: PushConsumer, timeout: float) -> Delivery:
    """The fact as a webhook: the same bytes under the same key on every attempt."""
    fact = claimed.key.fact
    ack = encode_ack(fact)
    config = {field: consumer.target[field] for field in FIELDS if field in consumer.target}
    return Delivery(
        id=str(UUID(bytes=fact.fact)),
        instance=str(UUID(bytes=fact.instance)),
        org=claimed.org,
        token="",
        kind=f"fact.{claimed.kind}",
        target=str(consumer.target.get("url", "")),
        key=ack,
        attempt=claimed.attempt,
        config=config,
        data={**msgspec.json.decode(claimed.body), "ack": ack, "consumer": consumer.name},
        created_at=fact.at,
        timeout=timeout,
    )
