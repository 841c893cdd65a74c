"""Deliveries of a batch: as they were read under the locks of their instances, and as answers change them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.core.machine.acks import Delivery, changed, gate_verdict, requeue, settle
from holdfast.core.machine.gates import GATE
from holdfast.core.model.signals import Acknowledged, FailedDelivery, GateDone, RequeueDeliveries, Signal, Suspend
from holdfast.core.model.state import Instance
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.core.signals.requeue import stale_letters
from holdfast.errors import NotFound, Refused
from holdfast.runtime.commit.items import Item
from holdfast.store.commit.deliveries import Change, tell

HALTED: Final = "ACK_SUSPEND"  # begins the reason of an instance that a failed delivery has suspended
AFTER_ALL: Final = "processed after all"


class Deliveries:
    def __init__(self) -> None:
        self.known: dict[tuple[bytes, bytes], dict[bytes, Delivery]] = {}  # by instance and fact, then by consumer
        self.changes: list[Change] = []
        self.halting: dict[bytes, set[tuple[bytes, bytes]]] = {}  # failed deliveries of instances with a requeue

    def know(self, found: dict[tuple[bytes, bytes], dict[bytes, Delivery]]) -> None:
        """Take deliveries as they were read, but for those that an answer of this very batch has changed."""
        for fact, deliveries in found.items():
            self.known.setdefault(fact, deliveries)

    def settle(self, item: Item, signal: Acknowledged, instance: Instance, date: int) -> Change | None:
        """The change of a delivery by its consumer's answer; None: the answer changes nothing."""
        delivery = self.known.get((item.instance, signal.ack), {}).get(signal.consumer)
        if delivery is None:
            raise unknown_ack()
        settled = settle(delivery, signal, is_over=instance.status in TERMINAL)
        if settled is None:
            return None
        return Change(
            key=(item.instance, signal.at, signal.ack),
            delivery=delivery,
            settled=settled,
            org=instance.org,
            flow=instance.flow,
            message=signal.message,
            date=date,
            by=item.actor.id,
            why=AFTER_ALL,
        )

    def follows(self, signal: Acknowledged, change: Change) -> Signal | None:
        """The signal to the instance that a change entails: its suspension, or the end of a gate."""
        if change.settled.halts:
            return Suspend(f"{HALTED}: {tell(change)}")
        if change.delivery.type != GATE:
            return None
        instance, _, fact = change.key
        after = {**self.known[instance, fact], signal.consumer: changed(change.delivery, change.settled)}
        verdict = gate_verdict(after.values())
        return None if verdict is None else GateDone(signal.ack, verdict)

    def keep(self, consumer: bytes, change: Change) -> None:
        instance, _, fact = change.key
        after = {consumer: changed(change.delivery, change.settled)}
        self.known[instance, fact] = {**self.known[instance, fact], **after}
        self.changes.append(change)

    def requeue(self, item: Item, signal: RequeueDeliveries, instance: Instance, date: int) -> bool:
        """Send failed deliveries again, all of them or none. True: they were the last that suspended the instance."""
        known = {(part.ack, part.consumer): self._of(item.instance, part) for part in signal.parts}
        again = {at: change for at, one in known.items() if one is not None and (change := requeue(one)) is not None}
        stale = [part for part in signal.parts if (part.ack, part.consumer) not in again]
        if stale:
            raise stale_letters(part.letter for part in stale)
        for part in signal.parts:
            delivery = known[part.ack, part.consumer]
            assert delivery is not None
            change = Change(
                key=(item.instance, part.at, part.ack),
                delivery=delivery,
                settled=again[part.ack, part.consumer],
                org=instance.org,
                flow=instance.flow,
                message=None,
                date=date,
                by=item.actor.id,
                why=signal.reason,
            )
            self.keep(part.consumer, change)
        return _is_halted(instance) and not self.halting.get(item.instance, set()) - again.keys()

    def _of(self, instance: bytes, part: FailedDelivery) -> Delivery | None:
        return self.known.get((instance, part.ack), {}).get(part.consumer)


def facts_of(signal: Signal, instance: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """The facts whose deliveries a signal changes."""
    if type(signal) is Acknowledged:
        yield instance, signal.at, signal.ack
    elif type(signal) is RequeueDeliveries:
        yield from ((instance, part.at, part.ack) for part in signal.parts)


def _is_halted(instance: Instance) -> bool:
    """Check if a failed delivery has suspended the instance."""
    return instance.status is InstanceStatus.SUSPENDED and (instance.reason or "").startswith(f"{HALTED}:")


def no_consumer(flow: str) -> Refused:
    environment, _, definition = flow.partition(".")
    return Refused(
        f"No consumer takes transitions of {definition!r} in {environment!r}, so nobody would be told.",
        code="CONSUMER_MISSING",
        hint="Register a consumer first: engine.consumer(...), or `holdfast consumers register`.",
    )


def unknown_ack() -> NotFound:
    return NotFound(
        "There is no such delivery.",
        code="ACK_UNKNOWN",
        hint="Send the `ack` of an event back as it came, as the consumer it came to.",
    )
