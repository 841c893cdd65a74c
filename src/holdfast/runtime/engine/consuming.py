"""Consumers: register them, take facts, see how far they are behind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.core.model.ack_handles import decode_ack, unknown_ack
from holdfast.core.model.timestamps import from_datetime
from holdfast.errors import Conflict, Refused
from holdfast.runtime.consumers.events import ConsumerEvent, Postpone
from holdfast.runtime.consumers.receiving import LONGEST_WAIT, MOST, Receiver, unknown_consumer
from holdfast.runtime.consumers.registering import (
    IN_FLIGHT,
    NOW,
    Since,
    new_consumer,
    take_number,
    take_target,
)
from holdfast.runtime.consumers.registry import Consumer
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.validation import Id, check_moment, check_text, take_id
from holdfast.store import consumers as stored
from holdfast.store import deliveries
from holdfast.store.consumers import ConsumerState, KnownConsumer
from holdfast.store.deliveries import FIRST, Delivery, DeliveryKey
from holdfast.store.reads.steps import check_page


class DeliveryPage(msgspec.Struct, frozen=True):
    """Some deliveries, and where the next page begins; None when this is the last one."""

    items: list[Delivery]
    next: str | None


class Replay(msgspec.Struct, frozen=True):
    """A replay, or what one would begin with."""

    consumer: str
    since: datetime
    dry_run: bool


class Consuming(Reading):
    def consumer(
        self,
        name: str,
        *,
        env: str,
        definitions: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        events: Iterable[str | int] | None = None,
        hooks: Iterable[str] | None = None,
        transitions: bool = True,
        takes_hooks: bool = True,
        since: Since = NOW,
        ttl: float | None = None,
        max_attempts: int | None = None,
        in_flight: int = IN_FLIGHT,
        critical: bool = True,
    ) -> Consumer:
        """Take facts in this process: `@consumer.on("Approved")` and `@consumer.hook("CODE")` add handlers.

        It is registered when a worker of this engine runs. Several processes with a consumer of one name share its
        deliveries.
        """
        new = new_consumer(
            self.consumer_options, name, env, "here", definitions, states, events, hooks, transitions=transitions,
            takes_hooks=takes_hooks, since=since, ttl=ttl, max_attempts=max_attempts, in_flight=in_flight,
            critical=critical,
        )  # fmt: skip
        return self.consumers_here.add(self.org, new)

    async def register_consumer(
        self,
        env: str,
        name: str,
        *,
        way: Literal["pull", "push"] = "pull",
        target: Mapping[str, Any] | None = None,
        definitions: Iterable[str] | None = None,
        states: Iterable[str] | None = None,
        events: Iterable[str | int] | None = None,
        hooks: Iterable[str] | None = None,
        transitions: bool = True,
        takes_hooks: bool = True,
        since: Since = NOW,
        ttl: float | None = None,
        max_attempts: int | None = None,
        in_flight: int = IN_FLIGHT,
        critical: bool = True,
        owner: str | None = None,
        of_any: bool = True,
    ) -> KnownConsumer:
        """Register a consumer that pulls its facts, or that is pushed to; again changes its settings.

        `since` counts for the first registration, and for one after a removal. It keeps its first `owner`; without
        `of_any`, one of another owner is refused.
        """
        if way not in ("pull", "push"):
            raise Refused(
                f"There is no way {str(way)[:40]!r} to register.",
                code="CONSUMER_WAY",
                hint="Register pull or push; `engine.consumer` is for handlers of this process.",
            )
        new = new_consumer(
            self.consumer_options, name, env, way, definitions, states, events, hooks, transitions=transitions,
            takes_hooks=takes_hooks, since=since, ttl=ttl, max_attempts=max_attempts, in_flight=in_flight,
            critical=critical,
        )  # fmt: skip
        check_text(owner, "owner")
        new = msgspec.structs.replace(new, target=take_target(way, target), owner=owner)
        known = await stored.register(self._opened(), self.org, new, of_any=of_any)
        if not of_any and known.owner != owner:
            raise Conflict(
                f"Somebody else has the consumer {name!r} in {env!r}.",
                code="CONSUMER_TAKEN",
                hint="Choose another name, or ask an operator to remove it.",
            )
        await stored.beat(self._opened(), [known.id])
        self._announce()
        return known

    async def beat_consumer(self, env: str, name: str) -> None:
        """Tell that a consumer is alive. Polls and workers beat by themselves."""
        known = await self.known_consumer(env, name)
        await stored.beat(self._opened(), [known.id])

    async def remove_consumer(self, env: str, name: str, *, by: str | None = None) -> None:
        """Remove a consumer: it gets no fact any more, and its open deliveries end as abandoned."""
        check_text(by, "actor")
        if not await stored.remove(self._opened(), self.org, env, name, by):
            raise unknown_consumer(env, name)
        self._announce()

    async def consumers(
        self,
        env: str | None = None,
        *,
        owner: str | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> list[ConsumerState]:
        """Consumers by environment and name, each with its lag, and since when it is down if it is.

        `owner` lists those of one subject. `after` is environment and name of the last one of the page before.
        """
        check_text(env, "environment")
        check_text(owner, "owner")
        limit = check_page(limit, "consumers")
        return await stored.list_consumers(self._opened(), self.org, env, after, limit, owner=owner)

    async def get_consumer(self, env: str, name: str) -> ConsumerState:
        """One consumer with its lag."""
        check_text(env, "environment")
        check_text(name, "consumer")
        found = await stored.read_consumer(self._opened(), self.org, env, name)
        if found is None:
            raise unknown_consumer(env, name)
        return found

    async def known_consumer(self, env: str, name: str) -> KnownConsumer:
        """One consumer without its lag: its settings and its owner."""
        check_text(env, "environment")
        check_text(name, "consumer")
        [known] = await stored.find(self._opened(), self.org, [(env, name)])
        if known is None or known.is_removed:
            raise unknown_consumer(env, name)
        return known

    # --- facts -----------------------------------------------------------------------------------------------------

    async def receive(self, env: str, consumer: str, *, most: int = 50, wait: float = 0.0) -> list[ConsumerEvent]:
        """Take due facts of a consumer that pulls; without any, wait for them for so many seconds.

        Each poll is a beat. Several processes that poll for one consumer share its facts. Answer each with
        `engine.ack`; a fact without an answer is due again later.
        """
        check_text(env, "environment")
        check_text(consumer, "consumer")
        most = round(take_number(most, "most", 1, MOST))
        return await self._receiver.receive(self.org, env, consumer, most, take_number(wait, "wait", 0.0, LONGEST_WAIT))

    async def listen(
        self, env: str, consumer: str, *, most: int = 50, life: float | None = None
    ) -> AsyncGenerator[ConsumerEvent]:
        """Yield facts of a consumer as they become due, in order for each instance, for ever or for `life` seconds.

        As many as its `in_flight` are without an answer at a time.
        """
        check_text(env, "environment")
        check_text(consumer, "consumer")
        most = round(take_number(most, "most", 1, MOST))
        async with aclosing(self._receiver.follow(self.org, env, consumer, most, life)) as following:
            async for event in following:
                yield event

    @property
    def _receiver(self) -> Receiver:
        return Receiver(
            self._opened, self._answers, self.consumer_options, self.board.news, self._hear, self._present_entry
        )

    def _hear(self) -> None:
        """Hear hints here; a worker of this process does already."""
        if self._worker is None:
            self._ears.open(self.dsn)

    async def deliveries(
        self,
        *,
        instance: Id | None = None,
        consumer: tuple[str, str] | None = None,
        closed: bool = False,
        after: str | None = None,
        limit: int = 50,
    ) -> DeliveryPage:
        """Facts that are open for a consumer (environment and name), or deliveries of an instance; oldest first.

        Of an instance, `closed` lists those that are over, too. `after` is the `next` of the page before.
        """
        if (instance is None) == (consumer is None):
            raise Refused(
                "Deliveries are listed by instance or by consumer.", code="FILTER_MISSING", hint="Name one of them."
            )
        start, taker = _place(after)
        most = check_page(limit, "deliveries") + 1
        if consumer is not None:
            found = await deliveries.list_open_deliveries(self._opened(), self.org, *consumer, start, most)
        else:
            assert instance is not None
            found = await deliveries.list_deliveries_of_instance(
                self._opened(), self.org, take_id(instance), start, most, closed=closed, after_consumer=taker
            )
        last = found[most - 2] if len(found) == most else None
        return DeliveryPage(found[: most - 1], None if last is None else f"{last.ack}.{last.consumer_id}")

    async def replay_consumer(self, env: str, name: str, *, since: datetime, dry_run: bool = False) -> Replay:
        """Give a consumer all its facts again from a moment on, in order; nothing newer overtakes them.

        Gates are not asked again: their answers are in the history of their instances.
        """
        known = await self.known_consumer(env, name)
        check_moment(since, "since")
        moment = from_datetime(since)
        if not dry_run:
            left = [one for one in await stored.list_filling(self._opened()) if one.id == known.id]
            if left or not await stored.replay(self._opened(), known.id, moment, None):
                raise Conflict(
                    f"The consumer {name!r} is being given past facts already.",
                    code="CONSUMER_FILLING",
                    hint="Wait until `filling` of the consumer is false.",
                )
            self._announce()
        return Replay(name, since, dry_run)

    async def settle_directly(
        self, env: str, consumer: str, ack: str, outcome: str, *, wish: Postpone | None = None
    ) -> None:
        """Store an answer that closes nothing: delivered, or retry with its wish. A closed delivery stays as it is."""
        address = decode_ack(ack)
        known = await self.known_consumer(env, consumer)
        key = DeliveryKey(address, known.id)
        if outcome == "delivered":
            done = key in await deliveries.mark_delivered(self._opened(), [key], self._answers.delivered)
        else:
            done = await self._answers.postpone(key, wish or Postpone(delay=self.consumer_options.pending_resend))
        if not done and not await deliveries.is_there(self._opened(), key):
            raise unknown_ack(ack)


def _place(after: str | None) -> tuple[tuple[int, bytes], bytes]:
    """The place behind a delivery: its fact, and its consumer among those that have the same one."""
    if after is None:
        return FIRST, bytes(16)
    handle, _, consumer = str(after).partition(".")
    fact = decode_ack(handle)
    return (fact.at, fact.fact), take_id(consumer) if consumer else bytes(16)
