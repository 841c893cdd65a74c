"""Attachment of deliveries to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.runtime.consumers.answers import Answers
from holdfast.runtime.consumers.events import PresentEntry
from holdfast.runtime.consumers.here import HereRunner
from holdfast.runtime.consumers.options import ConsumerOptions
from holdfast.runtime.consumers.push import Pusher
from holdfast.runtime.consumers.registry import Consumers
from holdfast.runtime.consumers.worker import DeliveriesWorker
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.worker.transactions import LentTransactions

if TYPE_CHECKING:
    from holdfast.runtime.worker.worker import Worker


def attach(
    worker: Worker,
    dsn: str,
    registry: Consumers,
    options: ConsumerOptions,
    effects: EffectOptions,
    answers: Answers,
    present: PresentEntry,
) -> None:
    """Let this worker send facts to consumers, unless its options forbid it."""
    if worker.options.consumers:
        transactions = LentTransactions(dsn, worker.options.calls)
        runner = HereRunner(answers, transactions, present, options.threads)
        pusher = Pusher(effects, answers, options.push_timeout)
        worker.deliveries = DeliveriesWorker(dsn, registry, options, worker.lease, answers, runner, pusher)
