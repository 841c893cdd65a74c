"""The engine: what a user holds. It wires the parts together and speaks their verbs; it decides nothing itself.

async with Engine() as engine:                # embedded PostgreSQL; Engine("postgresql://…") for yours
    engine.register("reserve", reserve)
    await engine.publish(Flow("order").step("reserve", "reserve").build())
    instance = await engine.start("order", {"amount": 5}, key="order-17")
    await engine.drain()
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.compiler.graph import Graph
from holdfast.core.signals import Abort, Actor, Cancel, EventArrived, ForceFail, Resume, Signal, Started, Suspend
from holdfast.core.state import EMPTY
from holdfast.core.state import Instance as Snapshot
from holdfast.core.status import TERMINAL, InstanceStatus
from holdfast.definitions.model import Definition as FlowDefinition
from holdfast.errors import Conflict, HoldfastError, NotFound, Refused
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.committer import Committer, Options, Outcome
from holdfast.runtime.dead_letters import LetterFilter, Letters, Resolved
from holdfast.runtime.edge import check_key, check_text, take_id, take_payload
from holdfast.runtime.effects import outbox
from holdfast.runtime.effects.kinds import Kind, Kinds
from holdfast.runtime.effects.options import EffectOptions
from holdfast.runtime.handlers import Registry
from holdfast.runtime.items import Item
from holdfast.runtime.metrics import Stats
from holdfast.runtime.operations import OLD, Operations
from holdfast.runtime.publishing import Published, publish
from holdfast.runtime.rebuild import Rebuilt
from holdfast.runtime.refusals import noted_refusal
from holdfast.runtime.retention import Retention
from holdfast.runtime.starter import Start, Starter, new_id
from holdfast.runtime.stuck import Reenqueued
from holdfast.runtime.tasks import Tasks
from holdfast.runtime.telemetry import Telemetry
from holdfast.runtime.timers import cancelled, rescheduled, take_moment
from holdfast.runtime.views import Page, current, pending
from holdfast.runtime.wakeups import Notifier
from holdfast.runtime.worker import Worker, WorkerOptions
from holdfast.settings import Settings
from holdfast.store import embedded, reads
from holdfast.store.borrowed import BorrowedVerbs
from holdfast.store.commit import NewInstance
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.dial import Address
from holdfast.store.doctor import Report
from holdfast.store.effects import Effect
from holdfast.store.keyed import send_keyed
from holdfast.store.maintenance import Upkeep
from holdfast.store.migrate import migrate
from holdfast.store.reads import Event, Instance, Step
from holdfast.store.repair import Stuck
from holdfast.store.runtimes import Runtime, read_runtime
from holdfast.store.session import Session
from holdfast.store.standing import StandingSession
from holdfast.store.tasks import Task, TaskEvent
from holdfast.store.timers import Later, send_later

Id = str | UUID


class Engine:
    def __init__(
        self,
        dsn: str | None = None,
        *,
        org: str | None = None,
        options: Options | None = None,
        direct_dsn: str | None = None,
        pooled: bool | None = None,
    ) -> None:
        settings = Settings.from_environment()
        self.dsn: str = Address(
            dsn or settings.dsn,
            direct=direct_dsn or settings.direct_dsn,
            pooled=settings.pooled if pooled is None else pooled,
        )
        self.org = org or settings.org
        self.options = options or Options(keep_early=settings.keep_early)
        self._operations = Operations(self)
        self.handlers = Registry()
        self.calls = Registry()
        self.effect_kinds = Kinds()
        self.effect_options = EffectOptions.from_environment()
        self.telemetry = Telemetry()
        self.catalog = Catalog()
        self._stack = contextlib.AsyncExitStack()
        self._worker: Worker | None = None
        self._open = False

    # --- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Engine:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        try:
            await self._open_parts()
        except BaseException:
            await self._stack.aclose()  # what was opened before the failure
            raise

    async def _open_parts(self) -> None:
        if not self.dsn:
            server = await asyncio.to_thread(embedded.start)
            self.dsn = server.dsn
        await asyncio.to_thread(migrate, self.dsn)
        self.telemetry.refresh()
        self._session = await StandingSession.open(self.dsn)
        self._stack.push_async_callback(self._session.close)
        self._notifier = Notifier(self._session)
        self._stack.push_async_callback(self._notifier.stop)
        self._starter = Starter(self.dsn)
        self._stack.push_async_callback(self._starter.close)
        self.committer = Committer(self.dsn, self.catalog, self.options)
        self._stack.push_async_callback(self.committer.stop)
        await self.committer.start()
        self._open = True

    async def close(self) -> None:
        self._open = False
        await self._stack.aclose()

    # --- what this process can do ----------------------------------------------------------------------------------

    def handler(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function as the handler of that name."""
        return lambda function: self.register(name, function)

    def register(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.handlers.register(name, function)

    def call(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function as an operation that runs inside the engine's transaction: `async def f(ctx, data)`."""
        return lambda function: self.calls.register(name, function)

    # --- effects ---------------------------------------------------------------------------------------------------

    def effect(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function that delivers effects of that kind: `def f(ctx, data)`, sync or async."""
        return lambda function: self.register_effect(name, function)

    def register_effect(self, name: str, kind: Callable[..., Any] | Kind) -> Any:
        self.effect_kinds.register(name, kind)
        return kind

    async def effects(self, instance_id: Id) -> list[Effect]:
        """The effects of an instance, oldest first, each with the evidence of its last attempt."""
        await self.get(instance_id)
        return await outbox.list_effects(self._opened(), self.org, instance_id)

    async def replay_effect(self, effect_id: Id, *, by: str | None = None, reason: str | None = None) -> Effect:
        """Let a dead effect be delivered again, under the same key and with as many attempts as it had at first."""
        replayed = await outbox.replay_effect(self._opened(), self.org, effect_id, by, reason)
        self._announce()
        return replayed

    # --- definitions -----------------------------------------------------------------------------------------------

    async def publish(self, definition: FlowDefinition | Graph | dict[str, Any], *, by: str | None = None) -> Published:
        """Compile, check and freeze a definition. The same version with the same content is left as it is."""
        session = self._opened()
        check_text(by, "actor")
        if isinstance(definition, FlowDefinition):
            for name, function in definition.handlers.items():
                self.register(name, function)
        published = await publish(session, self.org, definition, by)
        self.catalog.forget(published.name)
        return published

    # --- start -----------------------------------------------------------------------------------------------------

    async def start(
        self,
        flow: str,
        input: Any = None,
        *,
        key: str | None = None,
        version: int | None = None,
        business_key: str | None = None,
        attributes: dict[str, Any] | None = None,
        by: str | None = None,
        conn: Any = None,
    ) -> Instance:
        """Start an instance. The same key gives the same instance; `conn` starts it in the caller's own transaction."""
        session = self._opened()
        raw = take_payload({} if input is None else input, "the input", flow)
        check_key(key, "idempotency key")
        check_key(business_key, "business key")
        check_text(flow, "name of the flow")
        check_text(by, "actor")
        definition = self.catalog.cached(self.org, flow, version)
        if definition is None:
            definition = await self.catalog.find(session, self.org, flow, version)
        if conn is not None:
            return await self._borrowed.start(conn, definition, raw, key, business_key, by)
        extra = None if attributes is None else take_payload(attributes, "the attributes", flow)
        with self.telemetry.start(flow):
            start = Start(
                new_id(self.org, key, business_key), self.org, definition, raw, key, business_key, extra, by,
                self.telemetry.current_trace(),
            )  # fmt: skip
            if self._worker is not None and key is None:
                return await self._start_here(start)
            await self._starter.start(start)
        self._announce()
        return pending(start) if start.fresh else await self.get(str(UUID(bytes=start.id)))

    async def start_many(
        self,
        flow: str,
        inputs: Iterable[Any],
        *,
        keys: Sequence[str] | None = None,
        version: int | None = None,
        by: str | None = None,
    ) -> list[Instance]:
        """Start many instances of one flow in few commits."""
        session = self._opened()
        values = [take_payload({} if value is None else value, "the input", flow) for value in inputs]
        for key in keys or ():
            check_key(key, "idempotency key")
        check_text(flow, "name of the flow")
        check_text(by, "actor")
        if keys is not None and len(keys) != len(values):
            raise Refused(
                f"There are {len(values)} inputs and {len(keys)} keys.",
                code="KEYS_MISMATCH",
                hint="Give one key per input.",
            )
        definition = await self.catalog.find(session, self.org, flow, version)
        with self.telemetry.start(flow):
            trace = self.telemetry.current_trace()
            starts = (
                Start(new_id(self.org, key, None), self.org, definition, value, key, None, None, by, trace)
                for value, key in zip(values, keys or [None] * len(values), strict=True)
            )
            stored = await self._starter.start_many(starts, pending)
        self._announce()
        return [view if start.fresh else await self.get(UUID(bytes=start.id)) for start, view in stored]

    async def _start_here(self, start: Start) -> Instance:
        """A worker runs in this process: the first step opens in the commit that stores the instance."""
        definition = start.definition
        data = start.input if start.input[:1] == b"{" else b"{}"
        fresh = Snapshot(
            start.id, start.org, definition.id, definition.name, definition.version, 0, InstanceStatus.PENDING, EMPTY,
            data, trace=start.trace,
        )  # fmt: skip
        item = Item(
            start.id,
            Started(start.input),
            Actor(start.created_by or "system"),
            fresh,
            NewInstance(start.input, start.business_key, start.attributes, start.created_by),
        )
        view = self.committer.local[start.id] = pending(start)
        try:
            outcome = await self.committer.apply(item)
        except BaseException:
            self.committer.local.pop(start.id, None)
            raise
        return current(view, outcome.instance or fresh, outcome.now)

    # --- signals and control ---------------------------------------------------------------------------------------

    async def signal(
        self,
        instance_id: Id,
        event: str,
        payload: Any = None,
        *,
        node: str | None = None,
        token: str | None = None,
        id: Id | None = None,
        by: str | None = None,
        capabilities: Sequence[str] = (),
        if_version: int | None = None,
        at: datetime | None = None,
        delay: float | None = None,
        conn: Any = None,
    ) -> Instance:
        """Send an event to one instance; answered when it is committed, refused with a reason when it is not legal.

        With `at` or `delay` (seconds) it is kept until it is due; a refusal then is a dead letter.
        """
        raw = None if payload is None else take_payload(payload, "the payload", f"{event!r}")
        for text, what in ((event, "event"), (node, "node"), (token, "token"), (by, "actor")):
            check_text(text, what)
        moment, seconds = take_moment(at, delay)
        signal_id = new_id(self.org, None, None) if id is None else take_id(id)
        if conn is not None or moment is not None or seconds is not None:
            later = Later(
                take_id(instance_id), event, raw, signal_id, node, token, by, capabilities, if_version, moment, seconds
            )
            return await (self._send_later(later) if conn is None else self._borrowed.signal(conn, later))
        item = Item(
            take_id(instance_id),
            EventArrived(signal_id, event, raw, node, token, if_version),
            Actor(by or "system", tuple(capabilities)),
            receipt=str(UUID(bytes=signal_id)),  # also of an id made here: a lost answer makes the engine repeat itself
        )
        return await self._apply(item, is_repeatable=id is not None)

    async def _send_later(self, later: Later) -> Instance:
        async with noted_refusal(self._opened(), later.instance, later, later.by):
            await send_later(self._opened(), self.org, later)
        self._announce()
        return await self.get(UUID(bytes=later.instance))

    async def signal_key(
        self, event: str, key: str, payload: Any = None, *, id: Id | None = None, by: str | None = None
    ) -> str:
        """Send an event to every wait with that key, and keep it for waits that are yet to open. The event's id."""
        raw = None if payload is None else take_payload(payload, "the payload", f"{event!r}")
        check_key(key, "event key")
        check_text(event, "event")
        check_text(by, "actor")
        signal_id = new_id(self.org, key, None) if id is None else take_id(id)
        await send_keyed(self._opened(), self.org, event, key, raw, signal_id, by, self.options.keep_early)
        self._announce()
        return str(UUID(bytes=signal_id))

    async def cancel(
        self,
        instance_id: Id,
        *,
        by: str | None = None,
        reason: str | None = None,
        if_version: int | None = None,
        conn: Any = None,
    ) -> Instance:
        """Stop an instance: what rests ends now, handlers that are out finish and are recorded."""
        check_text(reason, "reason")
        check_text(by, "actor")
        if conn is not None:
            return await self._borrowed.cancel(conn, take_id(instance_id), reason, by)
        return await self._control(instance_id, Cancel(reason, if_version), by)

    async def abort(
        self, instance_id: Id, *, by: str | None = None, reason: str | None = None, if_version: int | None = None
    ) -> Instance:
        """End an instance at once; late results are refused."""
        return await self._control(instance_id, Abort(reason, if_version), by)

    async def suspend(self, instance_id: Id, *, by: str | None = None, reason: str | None = None) -> Instance:
        return await self._control(instance_id, Suspend(reason or "SUSPENDED_BY_OPERATOR"), by)

    async def resume(self, instance_id: Id, *, by: str | None = None) -> Instance:
        return await self._control(instance_id, Resume(), by)

    async def force_fail(self, instance_id: Id, *, by: str | None = None, reason: str | None = None) -> Instance:
        return await self._control(instance_id, ForceFail(reason), by)

    async def _control(self, instance_id: Id, signal: Signal, by: str | None) -> Instance:
        check_text(getattr(signal, "reason", None), "reason")
        check_text(by, "actor")
        return await self._apply(Item(take_id(instance_id), signal, Actor(by or "system")))

    async def _apply(self, item: Item, *, is_repeatable: bool = False) -> Instance:
        view = await self.get(str(UUID(bytes=item.instance)))  # somebody else's instance is not found, here too
        async with noted_refusal(self._opened(), item.instance, item.signal, item.actor.id):
            if view.status in TERMINAL and not is_repeatable:
                raise Conflict(f"The instance is over: {view.status}.", code="INSTANCE_OVER", hint="Start a new one.")
            await self.committer.apply(item)
        self._announce()
        return await self.get(view.id)

    # --- timers and dead letters -----------------------------------------------------------------------------------

    async def reschedule(
        self,
        instance_id: Id,
        node: str | None,
        *,
        at: datetime | None = None,
        delay: float | None = None,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Instance:
        """Another moment for the timer or deadline a node waits for, or (None) for the timeout of the instance."""
        return await self._control(instance_id, rescheduled(node, at, delay, token, reason), by)

    async def cancel_timer(
        self,
        instance_id: Id,
        node: str | None,
        *,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Instance:
        """No moment at all: a timer waits until it is rescheduled, a deadline or timeout is lifted."""
        return await self._control(instance_id, cancelled(node, token, reason), by)

    async def dead_letters(
        self,
        instance_id: Id | None = None,
        *,
        reason: str | None = None,
        source: str | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Open dead letters, newest first; `after` is the id of the last one of the page before."""
        return await self._letters.page(LetterFilter(instance_id, reason, source), after, limit)

    async def dead_letter(self, letter_id: Id) -> DeadLetter:
        return await self._letters.get(letter_id)

    async def requeue(
        self, letter_id: Id, input: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> DeadLetter:
        """Put back what one dead letter is about; answers the letter as it is then."""
        return await self._letters.requeue(letter_id, input, by, reason)

    async def replay_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: LetterFilter | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Resolved:
        """Put back what dead letters are about: those with these ids, or all open ones that the filter lets through."""
        return await self._letters.replay(ids, filter, by, reason, dry_run=dry_run)

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: LetterFilter | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Resolved:
        """Let go of dead letters: those with these ids, or all open ones that the filter lets through."""
        return await self._letters.discard(ids, filter, by, reason, dry_run=dry_run)

    @property
    def _letters(self) -> Letters:
        return Letters(self._opened(), self.org, self._announce)

    # --- reads -----------------------------------------------------------------------------------------------------

    async def get(self, instance_id: Id, *, conn: Any = None) -> Instance:
        if conn is not None:
            return await self._borrowed.get(conn, take_id(instance_id))
        found = await reads.read_instance(self._opened(), self.org, take_id(instance_id))
        if found is None:
            raise NotFound(
                f"There is no instance {instance_id}.",
                code="INSTANCE_UNKNOWN",
                hint="Check the id and the organisation.",
            )
        return found

    async def runtime(self, instance_id: Id) -> Runtime:
        """What the engine would resume the instance from: version, waits, tokens, last signal, last error."""
        await self.get(instance_id)
        found = await read_runtime(self._opened(), self.org, take_id(instance_id))
        assert found is not None
        return found

    async def steps(self, instance_id: Id, *, all: bool = False) -> list[Step]:
        """The steps of an instance in the order they happened; `all` adds the rows of ends and of interventions."""
        await self.get(instance_id)
        found = await reads.list_steps(self._opened(), self.org, take_id(instance_id))
        return found if all else [step for step in found if step.behaviour not in ("end", "control")]

    async def events(self, instance_id: Id) -> list[Event]:
        """The audit trail of an instance."""
        await self.get(instance_id)
        return await reads.list_events(self._opened(), self.org, take_id(instance_id))

    async def list(
        self,
        *,
        flow: str | None = None,
        status: str | None = None,
        business_key: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Instances, newest first; `after` is the `next` of the page before."""
        if status is not None and status not in tuple(InstanceStatus):
            raise Refused(
                f"There is no status {status!r}.", code="STATUS_UNKNOWN", hint=f"One of {', '.join(InstanceStatus)}."
            )
        if not 1 <= limit <= 1000:
            raise Refused("A page holds 1 to 1000 instances.", code="LIMIT_INVALID")
        check_text(flow, "name of the flow")
        check_key(business_key, "business key")
        found = await reads.list_instances(
            self._opened(),
            self.org,
            flow=flow,
            status=status,
            business_key=business_key,
            after=None if after is None else take_id(after),
            limit=limit + 1,
        )
        more = len(found) > limit
        return Page(found[:limit], found[limit - 1].id if more else None)

    async def wait(self, instance_id: Id, timeout: float | None = None) -> Instance:
        """The instance once it is over: at once when it ends in this process, by looking now and then elsewhere."""
        if timeout is not None:
            async with asyncio.timeout(timeout):
                return await self.wait(instance_id)
        id = take_id(instance_id)
        if id in self.committer.local:
            outcome = await self._end_of(id)
            if outcome.instance is not None:
                return current(outcome.started, outcome.instance, outcome.now)
        pause = 0.05
        while (found := await self.get(instance_id)).status not in TERMINAL:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._end_of(id)
            pause = min(pause * 1.5, 1.0)
        return found

    async def _end_of(self, id: bytes) -> Outcome:
        """Resolves when the instance ends in this process, or goes elsewhere."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        waiting = self.committer.waiters.setdefault(id, [])
        waiting.append(done)
        try:
            return await done
        finally:
            waiting.remove(done)
            if not waiting and self.committer.waiters.get(id) is waiting:
                del self.committer.waiters[id]

    # --- human tasks -----------------------------------------------------------------------------------------------

    async def tasks(
        self,
        instance_id: Id | None = None,
        *,
        role: str | None = None,
        assignee: str | None = None,
        status: str | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> list[Task]:
        """The tasks of an instance, or an inbox: what is open, most urgent first; `after` is the last of a page."""
        return await self._tasks.list(
            instance_id, role=role, assignee=assignee, status=status, after=after, limit=limit
        )

    async def task(self, task_id: Id) -> Task:
        return await self._tasks.get(task_id)

    async def task_events(self, task_id: Id) -> list[TaskEvent]:
        """Who did what with a task."""
        return await self._tasks.events(task_id)

    async def claim(self, task_id: Id, *, by: str, roles: Sequence[str] | None = None) -> Task:
        """Take a task: of any number of people exactly one gets it. If `roles` are given, one must be the task's."""
        return await self._tasks.claim(task_id, by, roles)

    async def release(self, task_id: Id, *, by: str) -> Task:
        """Give a task back, for others to claim."""
        return await self._tasks.release(task_id, by)

    async def assign(self, task_id: Id, *, to: str, by: str, reason: str | None = None) -> Task:
        """Give a task to somebody, whoever has it now."""
        return await self._tasks.assign(task_id, to, by, reason)

    async def delegate(self, task_id: Id, *, to: str, by: str, reason: str | None = None) -> Task:
        """Pass on a task that is in one's own hands."""
        return await self._tasks.delegate(task_id, to, by, reason)

    async def decide(
        self,
        task_id: Id,
        *,
        by: str,
        decision: str,
        comment: str | None = None,
        data: Any = None,
        roles: Sequence[str] | None = None,
        capabilities: Sequence[str] = (),
        id: Id | None = None,
        if_version: int | None = None,
        conn: Any = None,
    ) -> Task:
        """Decide a task; answered when it is committed. With `conn` it is sent in the caller's transaction."""
        return await self._tasks.decide(
            self._apply, task_id, by=by, decision=decision, comment=comment, data=data, roles=roles,
            capabilities=capabilities, signal_id=id, if_version=if_version, conn=conn,
        )  # fmt: skip

    @property
    def _tasks(self) -> Tasks:
        return Tasks(self._opened(), self.org)

    def stats(self) -> Stats:
        counters, worker = self.committer.counters, self._worker
        return Stats(
            commits=counters.commits,
            steps_closed=counters.steps,
            batches_retried=counters.retried,
            results_rejected=counters.rejected,
            handlers_running=worker.executor.running if worker else 0,
            jobs_queued=len(worker.executor.jobs) if worker else 0,
            results_buffered=len(self.committer.buffer),
            instances_cached=len(self.committer.cache),
            lease_seconds_left=worker.lease.seconds_left if worker else 0.0,
        )

    # --- operations ------------------------------------------------------------------------------------------------

    async def stuck(
        self, *, older_than: timedelta | float = OLD, after: Id | None = None, limit: int = 50
    ) -> Sequence[Stuck]:
        """Unfinished instances that nothing will move any more, by id; `after` is the last one of the page before."""
        self._opened()
        return await self._operations.stuck(older_than, after, limit)

    async def reenqueue(self, instance_id: Id, *, by: str | None = None, reason: str | None = None) -> Reenqueued:
        """Put what a stuck instance waits for back into the queues: open steps, timers, news of a sub-flow."""
        return await self._operations.reenqueue(self._opened(), take_id(instance_id), by, reason)

    async def rebuild(
        self, instance_id: Id, *, by: str | None = None, reason: str | None = None, dry_run: bool = False
    ) -> Rebuilt:
        """Make an instance's snapshot anew from its steps; refused when anything would be lost."""
        return await self._operations.rebuild(self._opened(), take_id(instance_id), by, reason, dry_run)

    async def maintain(self, retention: Retention | None = None) -> Sequence[Upkeep]:
        """The upkeep of the database, every task once: partitions, expiry, and what `retention` names."""
        self._opened()
        return await self._operations.maintain(retention)

    async def doctor(self, **thresholds: float) -> Report:
        """Examine the database: what is wrong, how badly, and what to do about it."""
        return await self._operations.doctor(thresholds)

    # --- work ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def worker(self, **options: Any) -> AsyncGenerator[Worker, None]:
        """Run handlers in this process for as long as the block lasts."""
        self._opened()
        if self._worker is not None:
            raise Conflict("A worker runs in this engine already.", code="WORKER_RUNNING")
        worker = Worker(
            self.dsn,
            self.committer,
            self.handlers,
            self.calls,
            self._notifier,
            self.telemetry,
            WorkerOptions(**options),
        )
        outbox.attach(worker, self.dsn, self.effect_kinds, self.effect_options, self._announce)
        await worker.start()
        self._worker = worker
        try:
            yield worker
        finally:
            self._worker = None
            await worker.stop()

    async def drain(self, timeout: float | None = None) -> None:
        """Run what is due in this process until nothing is left: for tests and scripts."""
        async with contextlib.AsyncExitStack() as stack:
            worker = self._worker or await stack.enter_async_context(self.worker())
            async with asyncio.timeout(timeout):
                while not await worker.is_done():
                    await asyncio.sleep(0.002)

    def wake(self) -> None:
        """Look for work now."""
        if self._worker is not None:
            self._worker.wake()

    def _announce(self) -> None:
        self.wake()
        self._notifier.hint()

    @property
    def _borrowed(self) -> BorrowedVerbs:
        return BorrowedVerbs(self.org)

    def _opened(self) -> Session:
        if not self._open:
            raise HoldfastError(
                "The engine is not open.", code="ENGINE_CLOSED", hint="Use it inside `async with Engine() as engine:`."
            )
        return self._session
