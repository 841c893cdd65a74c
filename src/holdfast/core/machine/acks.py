"""ACKs: the change of a delivery by its consumer's answer, or by the end of its attempts.

A delivery's status only goes forward; a success beats a failure, and a late answer to a closed one changes nothing.
The failed delivery of a critical consumer stays open: it halts later facts until the instance is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.core.machine.gates import FAILURE, SUCCESS
from holdfast.core.model.signals import Acknowledged

PENDING: Final = "pending"
DELIVERED: Final = "delivered"
PROCESSED: Final = "processed"
FAILED: Final = "failed"
EXPIRED: Final = "expired"
ABANDONED: Final = "abandoned"
EXHAUSTED: Final = "exhausted"


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One fact for one consumer, as its row is under the instance's lock."""

    consumer: bytes
    name: str
    status: str
    is_closed: bool
    attempts: int
    most: int
    is_critical: bool
    verdict: str | None
    kind: str
    type: str | None
    mode: str | None
    code: str | None
    is_settled: bool = False  # the consumer's own transaction has processed it; what follows from that is to be done
    is_removed: bool = False  # its consumer


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The change of a delivery. `halts`: the instance is to be suspended for it. `again`: it has new attempts."""

    status: str
    is_closed: bool
    verdict: str | None = None
    halts: bool = False
    buries: bool = False
    notice: str | None = None
    again: bool = False


def settle(delivery: Delivery, signal: Acknowledged, *, is_over: bool) -> Settled | None:
    """The change an answer makes; None: it changes nothing. `is_over`: the instance has ended."""
    if signal.outcome == PROCESSED:
        is_late = delivery.is_closed and delivery.status == PROCESSED
        return None if is_late else Settled(PROCESSED, True, _verdict(delivery, signal))
    if delivery.is_closed or (delivery.status == FAILED and signal.outcome != ABANDONED):
        return None
    if delivery.is_settled and signal.outcome != FAILED:
        return None  # its consumer has answered, and that answer is on its way
    if signal.outcome in (EXPIRED, ABANDONED):
        return Settled(signal.outcome, True)
    if signal.outcome == EXHAUSTED and delivery.attempts < delivery.most:
        return None  # it was given more meanwhile
    may_halt = delivery.is_critical and delivery.type != "effect"
    verdict = FAILURE if delivery.type == "gate" else None
    if not may_halt:
        return Settled(FAILED, True, verdict, buries=True, notice="ACK_FAIL")
    if is_over:
        return Settled(FAILED, True, verdict, buries=True, notice="ACK_FAIL")
    return Settled(FAILED, False, None, halts=True, buries=True, notice="ACK_SUSPEND")


def requeue(delivery: Delivery) -> Settled | None:
    """The change that sends a failed delivery again; None: it has not failed, or its consumer was removed."""
    if delivery.status != FAILED or delivery.is_removed:
        return None
    return Settled(PENDING, False, again=True)


def _verdict(delivery: Delivery, signal: Acknowledged) -> str | None:
    return (signal.verdict or SUCCESS) if delivery.type == "gate" else None


def gate_verdict(deliveries: Iterable[Delivery]) -> str | None:
    """The verdict of a gate by the answers of its consumers; None while it is open.

    `all`: every consumer must have answered, and one failure is a failure. `any`: the first success is one, and it is
    a failure only when no consumer is left that could still succeed. Consumers that were removed do not count, and a
    gate that has no other holds nothing.
    """
    counted = [delivery for delivery in deliveries if delivery.status != ABANDONED]
    if not counted:
        return SUCCESS
    waits_for_all = counted[0].mode != "any"
    succeeded = [d for d in counted if d.is_closed and d.verdict == SUCCESS]
    is_open = any(not d.is_closed for d in counted)
    if not waits_for_all:
        return SUCCESS if succeeded else None if is_open else FAILURE
    if is_open:
        return None
    return SUCCESS if len(succeeded) == len(counted) else FAILURE


def changed(delivery: Delivery, settled: Settled) -> Delivery:
    return msgspec.structs.replace(
        delivery,
        status=settled.status,
        is_closed=settled.is_closed,
        verdict=settled.verdict,
        is_settled=delivery.is_settled and not settled.again,
    )
