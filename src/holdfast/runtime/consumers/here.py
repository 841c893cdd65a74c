"""Handlers of this process: call one for a fact, in a transaction that commits with its ACK where it asks for that."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final

from holdfast.consumer.handlers import FactHandler
from holdfast.errors import HoldfastError
from holdfast.logs import logger
from holdfast.runtime.consumers.answers import FAILED, PROCESSED, Answers
from holdfast.runtime.consumers.events import Answer, ConsumerEvent, Postpone, PresentEntry, Trigger, Verdict
from holdfast.runtime.consumers.registry import Consumer
from holdfast.runtime.machines.triggers import take_event, take_raw
from holdfast.runtime.worker.handlers import DoNotRetry
from holdfast.runtime.worker.transactions import LentTransactions
from holdfast.store.commit.calls import CallTransaction
from holdfast.store.deliveries import Claimed, Settlement
from holdfast.store.pg.session import COMMIT

_LOGGER: Final = logger("holdfast.handlers")
_ANSWERS: Final = (Trigger, Verdict, Postpone, type(None))


class ConsumerContext:
    """The call of a handler. `conn` is the transaction that commits with the ACK, for a transactional handler."""

    def __init__(self, event: ConsumerEvent, conn: Any = None) -> None:
        self.consumer = event.consumer
        self.environment = event.environment
        self.attempt = event.attempt
        self.conn = conn
        self.logger = logging.LoggerAdapter(
            _LOGGER, {"instance": event.instance, "consumer": event.consumer, "ack": event.ack}
        )


class HereRunner:
    """Call handlers of this process for facts, and store their answers."""

    def __init__(self, answers: Answers, transactions: LentTransactions, present: PresentEntry, threads: int) -> None:
        self._answers = answers
        self._transactions = transactions
        self._present = present
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="holdfast-handler-consumer")

    async def close(self) -> None:
        await self._transactions.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, claimed: Claimed, consumer: Consumer) -> None:
        """Call the handler and store its answer. One that raises gets the fact again after the usual pause."""
        event = ConsumerEvent(claimed, consumer.environment, consumer.name, self._present)
        handler = consumer.find(event)
        try:
            if handler is None:
                await self._answers.close(claimed.key, PROCESSED, consumer.name)
            elif handler.transactional:
                await self._run_within(handler, event, claimed)
            else:
                await self._answers.take(
                    claimed, consumer.name, await self._call(handler, event, ConsumerContext(event))
                )
        except DoNotRetry as refusal:
            self._answers.report(event, claimed, refusal, again=False)
            if claimed.needs_ack:
                await self._answers.close(claimed.key, FAILED, consumer.name, str(refusal) or type(refusal).__name__)
        except Exception as failure:
            self._answers.report(event, claimed, failure, again=True)
            if claimed.needs_ack:
                await self._answers.again(claimed)
        if not claimed.needs_ack and handler is not None:
            await self._answers.try_close(claimed.key, PROCESSED, consumer.name)

    async def _run_within(self, handler: FactHandler, event: ConsumerEvent, claimed: Claimed) -> None:
        """Commit what a handler writes together with its ACK: both or neither, and once."""
        async with self._transactions.lend() as transaction:
            await transaction.begin_alone()
            async with transaction.lend(claimed.org, None, blocking=not handler.is_async) as conn:
                answer = await self._call(handler, event, ConsumerContext(event, conn))
            if isinstance(answer, Postpone):
                await self._answers.postpone(claimed.key, answer)
                return  # its writes are rolled back with the transaction
            await transaction.settle()
            await self._commit(transaction, event, claimed, answer)
        self._answers.announce()

    async def _commit(
        self, transaction: CallTransaction, event: ConsumerEvent, claimed: Claimed, answer: Answer
    ) -> None:
        verdict = answer if isinstance(answer, Verdict) else None
        then = verdict.then if verdict is not None else answer if isinstance(answer, Trigger) else None
        settlement = Settlement(
            claimed.org, event.environment, event.consumer, event.ack, verdict and verdict.message,
            verdict and verdict.word, None if then is None else str(take_event(then.event)),
            None if then is None else take_raw(then.payload, then.event),
        )  # fmt: skip
        [settled] = await transaction.session.run([settlement.query()])
        if settled.get_value(0, 0) == b"\1":  # else somebody has processed it before: nothing of this is stored
            await transaction.session.run([COMMIT])

    async def _call(self, handler: FactHandler, event: ConsumerEvent, context: ConsumerContext) -> Answer:
        arguments = (event, context) if handler.takes_context else (event,)
        try:
            if handler.is_async:
                answer = await handler.function(*arguments)
            else:
                run = partial(copy_context().run, handler.function, *arguments)
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except Postpone as wish:
            return wish
        if not isinstance(answer, _ANSWERS):
            raise HoldfastError(
                f"A handler answered {type(answer).__name__}.",
                code="ANSWER_INVALID",
                hint="Return nothing, Trigger(…), Verdict.failure(…) or Postpone(…).",
            )
        return answer
