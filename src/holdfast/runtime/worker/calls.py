"""In-transaction calls: functions that run in the transaction that records them, so both happen or neither does.

A call has a transaction to itself: lock the instance, ask `decide` for the call, run it, give `decide` the answer,
write, commit. A call that follows runs in the same transaction. If it fails, the transaction is repeated without it,
so that it fails on its own account and the one before it counts. A failure rolls everything back and is counted in a
commit of its own, by the same rules as a handler's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.core.decide import decide
from holdfast.core.model.decision import Call, Decision, Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import CallDue, Signal
from holdfast.core.model.status import InstanceStatus, StepStatus
from holdfast.errors import Conflict, HoldfastError, PayloadError, Refused, StoreError
from holdfast.logs import logger
from holdfast.runtime.commit.batch import Plan
from holdfast.runtime.commit.committer import Committer
from holdfast.runtime.commit.items import Item
from holdfast.runtime.telemetry.spans import Telemetry
from holdfast.runtime.validation import take_payload
from holdfast.runtime.worker.background import Reader
from holdfast.runtime.worker.context import Context, Job, NotBegun, job_of
from holdfast.runtime.worker.failures import failed, time_limit
from holdfast.runtime.worker.handlers import DoNotRetry, Handler, Registry
from holdfast.runtime.worker.transactions import LentTransactions
from holdfast.store.commit.calls import CallLimits, CallTransaction
from holdfast.store.commit.locks import Locked
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.session import BEGIN, COMMIT, DatabaseError, Disconnected, Session
from holdfast.store.pg.statements import SQL
from holdfast.store.pg.transaction import PIN
from holdfast.store.reads.background import ANSWERING

log = logger("holdfast.calls")

MAX_ROUNDS: Final = 10
MAX_TRIES: Final = 3
BUSY_PAUSE: Final = 0.005
BUSY_ROUNDS: Final = 200
AWAY_PAUSE: Final = 0.25
THREAD_GRACE: Final = 5.0
_RACES: Final = ("HF001", "23505")
_PASSES: Final = ("40", "55", "57", "53", "08", "25")


class _CallFailed(Exception):
    """Exception of the user's side of the transaction; `alone` when it was the call the job is about."""

    def __init__(self, failure: Exception, *, alone: bool) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.alone = alone


class _TryAgain(Exception):
    """Failure of our side of the transaction, for which no call is to blame."""


class _Decided(Plan):
    """A plan whose one decision is made already."""

    def __init__(self, committer: Committer, locked: Locked, instance: bytes, decision: Decision) -> None:
        options = committer.options
        super().__init__(committer.catalog, locked, committer.worker, committer.port.leases, fast=options.fast_paths)
        self.keep_for, self.point = options.keep_early, committer.point
        self.entries[instance] = Entry(locked.instances[instance], [decision])

    async def complete(self, session: Session, item: Item) -> None:
        await self._complete(session, item)


class Calls:
    def __init__(
        self,
        dsn: str,
        committer: Committer,
        registry: Registry,
        telemetry: Telemetry,
        is_lost: Callable[[Job], bool],
        give_back: Callable[[Job], None],
        limits: CallLimits,
        reader: Reader,
    ) -> None:
        self._committer = committer
        self._registry = registry
        self._telemetry = telemetry
        self._is_lost = is_lost
        self._give_back_job = give_back
        self._reader = reader
        self._room = asyncio.Semaphore(limits.sessions)
        self._sessions = LentTransactions(dsn, limits)
        self._threads = ThreadPoolExecutor(max_workers=limits.sessions, thread_name_prefix="holdfast-call")

    async def close(self) -> None:
        await self._sessions.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, job: Job) -> None:
        """Run the job until it is committed, counted as a failure, or no longer ours."""
        alone, tries, busy = False, 0, 0
        async with self._room:
            while True:
                if self._is_lost(job):
                    self._give_back_job(job)
                    return
                try:
                    if await self._attempt(job, alone):
                        return
                    busy += 1
                    if busy % BUSY_ROUNDS == 0 and await self._is_gone(job):
                        self._drop(job)
                        return
                    await asyncio.sleep(BUSY_PAUSE)
                except NotBegun:
                    self._give_back_job(job)
                    return
                except _CallFailed as failed_call:
                    if failed_call.alone:
                        self._fail(job, failed_call.failure)
                        return
                    alone = True
                except _TryAgain as trouble:
                    tries += 1
                    if tries == MAX_TRIES:
                        self._fail(job, trouble)
                        return
                except StoreError as away:
                    log.warning("A call waits for the database: %s", away.message)
                    await asyncio.sleep(AWAY_PAUSE)
                except Exception as failure:
                    log.exception("The call %r could not be run", job.place.id)
                    self._fail(job, failure)
                    return

    def _fail(self, job: Job, failure: Exception) -> None:
        self._committer.add(Item(job.instance, failed(job, failure)))

    def _drop(self, job: Job) -> None:
        self._committer.counters.rejected += 1
        self._committer.port.dropped(_item(job))

    async def _is_gone(self, job: Job) -> bool:
        """Locked for a while, or not there at all: a standby that took over may not have had it."""
        async with self._transaction() as transaction:
            work = job.instance, job.instance[15], job.path, job.fence
            answers = await transaction.session.run([BEGIN, PIN, SQL.find_lost_work.rows([work], job.holder), COMMIT])
            return answers[2].ntuples > 0

    # --- one transaction -------------------------------------------------------------------------------------------

    async def _attempt(self, job: Job, alone: bool) -> bool:
        """False: the instance is locked elsewhere."""
        async with self._transaction() as transaction:
            locked = await transaction.begin(job.instance)
            if locked is None:
                return False
            if locked.instances[job.instance].status is InstanceStatus.SUSPENDED:
                raise NotBegun
            item = _item(job)
            try:
                decision = await self._decide(transaction, job, locked, item.signal, alone)
            except (Refused, Conflict):
                self._drop(job)
                return True
            await self._commit(transaction, locked, item, decision)
        return True

    async def _decide(
        self, transaction: CallTransaction, job: Job, locked: Locked, signal: Signal, alone: bool
    ) -> Decision:
        """Round by round: what `decide` needs is run, and it decides again with the answers."""
        instance, answers = locked.instances[job.instance], dict[bytes, bytes]()
        program = await self._committer.catalog.program(transaction.session, instance.definition, inside=True)
        for _ in range(MAX_ROUNDS + 1):
            facts = Facts(
                locked.now,
                answers=answers,
                inline_calls=not (alone or self._committer.hooks.gates),
                max_context=self._committer.options.max_context,
            )
            try:
                decision = decide(program, instance, signal, facts)
            except PayloadError as overflow:  # what the calls gave cannot be kept: they must not have happened
                raise _CallFailed(overflow, alone=alone) from None
            wanted = [need for need in decision.needs if isinstance(need, Call)]
            if not wanted:
                await self._settle(transaction, answers)
                return decision
            answered = _answered(decision)
            for call in wanted:
                answers[call.step] = await self._answer(transaction, _job_of(job, program, call, answered), job, call)
        message = f"More than {MAX_ROUNDS} rounds of calls in one transaction."
        raise _CallFailed(HoldfastError(message, code="CALL_ROUNDS"), alone=alone)

    async def _answer(self, transaction: CallTransaction, inner: Job, job: Job, call: Call) -> bytes:
        try:
            return await self._invoke(transaction, inner, call)
        except Disconnected:
            raise
        except Exception as failure:
            raise _CallFailed(failure, alone=call.step == job.step) from failure

    async def _settle(self, transaction: CallTransaction, answers: dict[bytes, bytes]) -> None:
        if not answers:
            return
        try:
            await transaction.settle()
        except Disconnected:
            raise
        except Exception as failure:
            raise _CallFailed(failure, alone=len(answers) == 1) from failure

    async def _commit(self, transaction: CallTransaction, locked: Locked, item: Item, decision: Decision) -> None:
        plan, flight = _Decided(self._committer, locked, item.instance, decision), object()
        self._committer.under_way.add(flight)
        try:
            await plan.complete(transaction.session, item)
            await transaction.commit(plan.writes())
        except DatabaseError as error:
            if error.sqlstate in _RACES or error.sqlstate.startswith(_PASSES):
                raise _TryAgain(str(error)) from None
            raise
        except Disconnected as gone:
            self._committer.port.reconnected()  # it may have been committed: then the next try finds the step closed
            raise _TryAgain(str(gone)) from None
        else:
            self._committer.committed(plan)
        finally:
            self._committer.under_way.discard(flight)

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[CallTransaction]:
        try:
            async with self._sessions.lend() as transaction:
                yield transaction
        except Disconnected as gone:
            raise _TryAgain(str(gone)) from None

    # --- the user's function ---------------------------------------------------------------------------------------

    async def _invoke(self, transaction: CallTransaction, job: Job, call: Call) -> bytes:
        handler = self._registry.get(call.operation)
        if handler is None:
            raise DoNotRetry(f"There is no call {call.operation!r} in this worker.")
        timeout = job.place.node.timeout
        async with transaction.lend(job.org, timeout, blocking=not handler.is_async) as conn:
            context = Context(job, self._is_lost, self._reader, conn)
            data = msgspec.json.decode(call.input)
            if handler.convert is not None:
                data = handler.convert(data)
            with self._telemetry.step(context, job.trace):
                async with time_limit(job):
                    value = await self._run_in_layers(handler, context, data, call.input)
        return take_payload(value, f"the result of {call.node!r}")

    async def _run_in_layers(self, handler: Handler, context: Context, data: Any, input: bytes) -> Any:
        hooks, run = self._committer.hooks, partial(self._run_function, handler, context, data)
        return await (hooks.call(context, partial(msgspec.json.decode, input), run) if hooks.calls else run())

    async def _run_function(self, handler: Handler, context: Context, data: Any) -> Any:
        job = job_of(context)
        self._check(job)
        if handler.is_async:
            return await handler.function(context, data)

        def run() -> Any:
            self._check(job)
            return handler.function(context, data)

        function = partial(copy_context().run, run)
        work = asyncio.get_running_loop().run_in_executor(self._threads, function)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            context.conn.end()  # a thread cannot be stopped, but it can be kept from the connection
            await asyncio.wait([work], timeout=THREAD_GRACE)
            raise

    def _check(self, job: Job) -> None:
        """The last thing before the function's own code; nothing of the transaction has happened then."""
        if self._is_lost(job):
            raise NotBegun


def _item(job: Job) -> Item:
    return Item(job.instance, CallDue(job.path, job.step, job.fence, job.calls, job.input))


def _answered(decision: Decision) -> dict[str, bytes]:
    """The results of steps in this transaction, which no read can find yet."""
    at_once = [step for step in decision.opened if step.closed and step.behaviour in ANSWERING]
    ended = sorted([*decision.closed, *at_once], key=lambda step: (step.version, step.ordinal))
    return {s.node: s.output for s in ended if s.output is not None and s.status is StepStatus.COMPLETED}


def _job_of(job: Job, program: Program, call: Call, answered: dict[str, bytes]) -> Job:
    """The job as the function sees it: for its own step, which may be a later one than the job's."""
    place, hop = program.places[call.node], int(call.token.rpartition("@")[2])
    return msgspec.structs.replace(
        job, path=call.path, hop=hop, step=call.step, calls=call.calls, place=place, input=call.input,
        answered=answered,
    )  # fmt: skip
