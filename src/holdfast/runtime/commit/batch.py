"""One commit in the making: its locked instances, and the decision on each item.

`decide` is pure, so a plan can be thrown away and made again at no cost. That happens when a guard in the database
reports that another writer was faster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from holdfast.core.decide import decide, decide_at_length
from holdfast.core.machine.acks import PROCESSED
from holdfast.core.machine.triggers import NotApplied
from holdfast.core.model.decision import Decision, Dispatch, EarlyEvents, Facts, History, TaskFacts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import (
    SYSTEM,
    Acknowledged,
    Actor,
    Backfilled,
    Cancel,
    Decided,
    EventArrived,
    Migrate,
    Requeue,
    RequeueDeliveries,
    RequeueMany,
    Resume,
    Signal,
    Started,
    Triggered,
    WorkDone,
    WorkFailed,
)
from holdfast.core.model.snapshot import inconsistency
from holdfast.core.model.state import Instance
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.core.model.timestamps import seconds
from holdfast.core.signals.migrate import lost_undos
from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound, PayloadError, Refused, StoreError
from holdfast.graph.machine import MachineConfig
from holdfast.logs import logger
from holdfast.payloads.bounds import MAX_CONTEXT_BYTES
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.commit.contents import content_of
from holdfast.runtime.commit.deliveries import Deliveries, facts_of, no_consumer
from holdfast.runtime.commit.follow_ups import follow, is_overtaken, is_repeated, plan_rollbacks, remember_taker
from holdfast.runtime.commit.items import Item, Overtaken, from_queue
from holdfast.store.commit.batch import Batch, ChildStart, SignalReceipt, writes
from holdfast.store.commit.deliveries import (
    Change,
    deliveries_of,
    found_deliveries,
    found_halting,
    halting_of,
)
from holdfast.store.commit.ensuring import takers_of
from holdfast.store.commit.history import open_letters, read_visited, was_taken_back
from holdfast.store.commit.locks import Locked, QueuedSignal
from holdfast.store.commit.needs import (
    KeptEvent,
    Receipt,
    SignalContent,
    find_receipts,
    found_receipts,
    lock_event_keys,
    take_idle_work,
)
from holdfast.store.commit.rows import Entry
from holdfast.store.pg.partitions import Month
from holdfast.store.pg.session import Session, rows
from holdfast.store.pg.statements import Query
from holdfast.store.pg.wire import read_int
from holdfast.store.queue.work import POINT
from holdfast.store.tasks import lock_tasks, locked_tasks, tasks_to_lock

log = logger("holdfast.commit")

NOWHERE: Final = "", "", ""  # a machine of an instance that is not locked
STALE_IS_FINE = (WorkDone, WorkFailed)
OF_LETTERS = (Requeue, RequeueMany, RequeueDeliveries)
KEEP_SECONDS = 7 * 24 * 3600.0
_STARTED_BEFORE = frozenset({"ALREADY_STARTED", "INSTANCE_OVER"})
_SILENT_KINDS = frozenset({"timer", "child_finished", "receipt", "started", "lapsed", "gate"})


class Plan:
    def __init__(
        self,
        catalog: Catalog,
        locked: Locked,
        worker: bytes | None,
        leases: Callable[[Dispatch], bool],
        max_context: int = MAX_CONTEXT_BYTES,
        *,
        fast: bool = True,
    ) -> None:
        self.catalog = catalog
        self.locked = locked
        self.worker = worker
        self.may_lease = leases
        self.max_context = max_context
        self.fast = fast
        self.decide = decide if fast else decide_at_length
        self._facts = Facts(locked.now, max_context=max_context)
        self.entries: dict[bytes, Entry] = {}
        self.leased: set[bytes] = set()  # steps leased to us by this commit
        self.answers: list[tuple[asyncio.Future[Any], Decision | None]] = []
        self.refused: list[tuple[Item, Exception]] = []
        self.busy: list[Item] = []
        self.consumed: list[tuple[bytes, bytes]] = []
        self.buried: list[tuple[QueuedSignal, str, HoldfastError]] = []
        self.broken: list[tuple[Item, Exception]] = []
        self.halted: set[bytes] = set()  # a signal of theirs is to be tried again, and younger ones stay behind it
        self.receipts: list[SignalReceipt] = []
        self.replies: list[tuple[asyncio.Future[Any], bytes | None]] = []  # answers that change no instance
        self.deliveries = Deliveries()  # those that are answered
        self.takers: set[tuple[str, str, str]] = set()  # machines that have a consumer of transitions
        self.kept: list[tuple[bytes, str, KeptEvent]] = []  # (instance, org, an early event)
        self.keep_for = KEEP_SECONDS
        self.ensured: set[bytes] = set()  # machines that this transaction inserted, with their look for rests
        self.stale_after: float | None = None  # seconds of rest that are told of, where a policy says nothing
        self.point = POINT
        self.month: Month | None = None
        self.rollbacks: dict[bytes, Entry] = {}  # those that wait for their history
        self.children: list[ChildStart] = []
        self.unmade: list[tuple[bytes, int, bytes]] = []  # (instance, created_at, step) of calls that do not count
        self.stale: list[Item] = []  # results that came too late
        self.tasks: dict[bytes, TaskFacts | None] = {}  # who holds those that are decided; locked till the end
        self.visited: dict[bytes, frozenset[str]] = {}  # where those have been that are migrated, if that matters
        self.taken_back: set[bytes] = set()  # those a queued cancel is for that a rollback has ended
        self.unloadable: dict[bytes, HoldfastError] = {}  # definitions that nothing can be decided on

    async def make(self, session: Session, items: list[Item]) -> None:
        self.ensured = {item.instance for item in items if item.ensure is not None}
        await self._load_programs(session, items)
        await self._lock_keys(session, items)
        known = await self._look_up(session, items)
        for queued in self.locked.signals:
            if queued.instance not in self.halted:
                await self._take_queued(session, queued)
        for item in items:
            content = self._content_of(item)
            receipt = None if content is None else known[content]
            if receipt is not None and not self._is_new(item, receipt):
                continue
            if isinstance(item.signal, OF_LETTERS) and not await self._are_open(session, item, item.signal):
                continue
            if type(item.signal) is Migrate:
                await self._look_back(session, item, item.signal)
            if self._take(item, receipt):
                await self._complete(session, item)
        if self.rollbacks:
            await plan_rollbacks(self, session)

    async def _lock_keys(self, session: Session, items: list[Item]) -> None:
        """Lock, in sorted order, the event keys this batch will wait on. A dry-run decision finds them."""
        programs = [self.catalog.known(instance.definition) for instance in self.locked.instances.values()]
        if not any(program is not None and program.waits_by_key for program in programs):
            return
        trial = Plan(self.catalog, self.locked, self.worker, self.may_lease, self.max_context, fast=self.fast)
        trial.unloadable = self.unloadable
        for queued in self.locked.signals:
            trial.take_for_trial(queued)
        for item in items:
            trial._take(item)
        keys = {(entry.before.org, n.event, n.key) for entry in trial.entries.values() for n in _keyed_needs(entry)}
        await lock_event_keys(session, sorted(keys))

    async def _look_up(self, session: Session, items: Sequence[Item]) -> dict[SignalContent, Receipt]:
        """Read the earlier receipts of these signals, lock the tasks they decide, and read who has answered the facts
        they are about: one flush for all."""
        signals = [content for item in items if (content := self._content_of(item)) is not None]
        tasks = sorted({item.signal.task for item in items if type(item.signal) is Decided})
        facts = sorted({fact for item in items for fact in facts_of(item.signal, item.instance)})
        requeued = sorted({item.instance for item in items if type(item.signal) is RequeueDeliveries})
        machines = sorted({self._machine_of(item) for item in items if _moves(item.signal)} - {NOWHERE})
        queries = [
            *([find_receipts(signals)] if signals else ()),
            *([deliveries_of(facts)] if facts else ()),
            *([takers_of(machines)] if machines else ()),
            *([halting_of(requeued)] if requeued else ()),
            *([tasks_to_lock(tasks)] if tasks else ()),
        ]
        results = await session.run(queries) if queries else []
        if tasks:
            self.tasks |= locked_tasks(tasks, results[-1])
        if facts:
            self.deliveries.know(found_deliveries(results[bool(signals)]))
        if machines:
            found = rows(results[bool(signals) + bool(facts)])
            self.takers |= {machines[read_int(number) - 1] for (number,) in found}
        if requeued:
            self.deliveries.halting |= found_halting(results[bool(signals) + bool(facts) + bool(machines)])
        return found_receipts(signals, results[0]) if signals else {}

    async def _hold_tasks(self, session: Session, items: Sequence[Item]) -> None:
        decided = {item.signal.task for item in items if type(item.signal) is Decided} - self.tasks.keys()
        if decided:
            self.tasks |= await lock_tasks(session, sorted(decided))

    async def _look_back(self, session: Session, item: Item, signal: Migrate) -> None:
        """A compensation that the new version lacks is missed only by those who have been there."""
        found = self.locked.instances.get(item.instance)
        if found is None:
            return
        entry = self.entries.get(item.instance) or Entry(found, [])
        now = entry.decisions[-1].instance if entry.decisions else found
        old, new = self.catalog.known(now.definition), self.catalog.known(signal.definition)
        if old is not None and new is not None and lost_undos(old, new, signal):
            self.visited[item.instance] = await read_visited(session, found.id, entry.decisions, inside=True)

    async def _look_for_rollback(self, session: Session, item: Item) -> None:
        """Look in the trail for a rollback: a cancel may be read when the rollback it meets is over."""
        found = self.locked.instances.get(item.instance)
        is_asked = type(item.signal) is Cancel and found is not None and found.status is InstanceStatus.FAILED
        if is_asked and await was_taken_back(session, item.instance):
            self.taken_back.add(item.instance)

    def _task_of(self, signal: Signal) -> TaskFacts | None:
        return self.tasks.get(signal.task) if type(signal) is Decided else None

    def take_for_trial(self, queued: QueuedSignal) -> None:
        self.consumed.append((queued.instance, queued.id))
        with contextlib.suppress(PayloadError):
            self._take(from_queue(queued, self.locked.inputs.get(queued.instance)))

    def make_unlocked(self, items: list[Item]) -> bool:
        """Decide over snapshots of our own; False when a decision turns out to need locks.

        A refusal needs them too: our snapshot may be old, and only the locked row says that a result is really stale.
        The history for a rollback is as old as the snapshot it is read for, and the version guards both.
        """
        for item in items:
            if self._take(item) and not self._asks_for_history(item):
                return False
        return not (self.broken or self.stale or self.refused)

    def _asks_for_history(self, item: Item) -> bool:
        entry = self.entries[item.instance]
        decision = entry.decisions[-1]
        if decision.children or decision.stops or decision.halts or type(decision.needs[0]) is not History:
            return False
        self.rollbacks[item.instance] = entry
        return True

    def writes(self) -> list[Query]:
        """Every write, in lock order; COMMIT is the caller's."""
        if not self.locked.ahead:
            return writes(self.batch())
        return [query for date in (self.locked.now, *{*self.locked.ahead.values()}) for query in self._writes_of(date)]

    def batch(self) -> Batch:
        return Batch(
            now=self.locked.now,
            worker=self.worker,
            leases=self._lease,
            entries=list(self.entries.values()),
            consumed=self.consumed,
            receipts=self.receipts,
            kept=self.kept,
            children=self.children,
            point=self.point,
            month=self.month,
            unmade=self.unmade,
            fast=self.fast,
            settled=self.deliveries.changes,
            over=list(self._over()),
            watched=[watched for _, watched in self._watched()],
        )

    def _over(self) -> Iterator[bytes]:
        """Machines that end with this commit."""
        for id, entry in self.entries.items():
            after = entry.decisions[-1].instance
            is_over = after.status in TERMINAL and entry.before.status not in TERMINAL
            if is_over and self._machine(after.definition) is not None:
                yield id

    def _watched(self) -> Iterator[tuple[bytes, tuple[bytes, str, float | None]]]:
        """Machines whose rests are to be looked after: those that begin here, and those with another policy."""
        for id, entry in self.entries.items():
            before, after = entry.before, entry.decisions[-1].instance
            if before.version and before.definition == after.definition:
                continue
            machine = self._machine(after.definition)
            if machine is not None and id not in self.ensured:
                yield id, (id, before.org, self.stale_after if machine.stale is None else machine.stale)

    def _machine(self, definition: bytes) -> MachineConfig | None:
        program = self.catalog.known(definition)
        return None if program is None else program.machine

    def _writes_of(self, date: int) -> list[Query]:
        """The writes of instances with one date. Their rows are locked, so dates in any order cannot deadlock."""
        of, month = self.locked.date_of, self.month if date == self.locked.now else None
        return writes(
            Batch(
                now=date,
                worker=self.worker,
                leases=self._lease,
                entries=[e for id, e in self.entries.items() if of(id) == date],
                consumed=[c for c in self.consumed if of(c[0]) == date],
                receipts=[r for r in self.receipts if of(r.instance) == date],
                kept=[k for k in self.kept if of(k[0]) == date],
                children=[c for c in self.children if of(c.parent) == date],
                point=self.point,
                month=month,
                unmade=[u for u in self.unmade if of(u[0]) == date],
                fast=self.fast,
                settled=[c for c in self.deliveries.changes if of(c.key[0]) == date],
                over=[id for id in self._over() if of(id) == date],
                watched=[watched for id, watched in self._watched() if of(id) == date],
            )
        )

    def _lease(self, dispatch: Dispatch) -> bool:
        if not self.may_lease(dispatch):
            return False
        self.leased.add(dispatch.step)
        return True

    async def _load_programs(self, session: Session, items: list[Item]) -> None:
        instances = [*self.locked.instances.values(), *(i.fresh for i in items if i.fresh is not None)]
        targets = {i.signal.definition for i in items if type(i.signal) is Migrate}
        for definition in {i.definition for i in instances} | targets:
            if self.catalog.known(definition) is None:
                try:
                    await self.catalog.program(session, definition, inside=True)
                except HoldfastError as failure:
                    self.unloadable[definition] = failure

    # --- one item ------------------------------------------------------------------------------------------------

    async def _take_queued(self, session: Session, queued: QueuedSignal) -> None:
        self.consumed.append((queued.instance, queued.id))
        try:
            item = from_queue(queued, self.locked.inputs.get(queued.instance))
        except PayloadError as failure:
            self._bury(queued, failure)
            return
        await self._hold_tasks(session, [item])
        if isinstance(item.signal, Triggered | Acknowledged):
            await self._take_of_machine(session, item)
            return
        await self._look_for_rollback(session, item)
        needs_more = self._take(item)
        entry = self.entries.get(item.instance)
        if entry is not None:
            await remember_taker(session, entry, item.signal)
        if needs_more:
            await self._complete(session, item)

    async def _are_open(self, session: Session, item: Item, signal: Requeue | RequeueMany | RequeueDeliveries) -> bool:
        found = self.locked.instances.get(item.instance)
        if found is None:
            return True
        parts = (signal,) if isinstance(signal, Requeue) else signal.parts
        letters = [part.letter for part in parts]
        still = await open_letters(session, letters, found.org)
        settled = [str(UUID(bytes=letter)) for letter in letters if letter not in still]
        if not settled:
            return True
        refusal = Conflict(
            "The dead letter has been settled meanwhile.",
            code="DEAD_LETTER_RESOLVED",
            hint="What failed again has a new dead letter.",
            letters=settled,
        )
        self.refused.append((item, refusal))
        return False

    def _is_new(self, item: Item, receipt: Receipt) -> bool:
        """The same signal id again: the same body is the same signal, another one is a conflict."""
        earlier, answer = receipt.earlier, receipt.answer
        if earlier is None:  # it may also stand in this very batch
            mine = item.instance, item.receipt
            same = next((r for r in self.receipts if (r.instance, r.key) == mine), None)
            earlier, answer = (None, None) if same is None else (same.digest, same.answer)
        if earlier is None:
            return True
        if earlier == receipt.content:
            if item.answer is not None:
                self.replies.append((item.answer, answer))
            return False
        self.refused.append(
            (
                item,
                Conflict(
                    f"A signal with the id {item.receipt} was already received with another body.",
                    code="SIGNAL_ID_REUSED",
                    hint="Use a new id for a new signal.",
                ),
            )
        )
        return False

    def _take(self, item: Item, receipt: Receipt | None = None) -> bool:
        """Decide upon one item. True: the decision asks for something that must be fetched before the commit."""
        entry = self.entries.get(item.instance)
        if entry is not None:
            instance = entry.decisions[-1].instance
        else:
            found = self.locked.instances.get(item.instance) or item.fresh
            if found is None:
                unreadable = self.locked.unreadable.get(item.instance)
                if unreadable is None:
                    self.busy.append(item)
                else:
                    self._break(item, unreadable)
                return False
            instance = found
        program = self.catalog.known(instance.definition)
        if program is None:
            self._break(item, self.unloadable[instance.definition])
            return False
        if type(item.signal) is Acknowledged:
            self._acknowledge(item, item.signal, instance, program, receipt)
            return False
        if type(item.signal) is RequeueDeliveries:
            return self._requeue_deliveries(item, item.signal, instance, program, receipt)
        try:
            _check_node(program, item.signal)
            if type(item.signal) is Triggered and self._machine_of(item) not in self.takers:
                raise no_consumer(instance.flow)
            if item.remembered and instance.status in TERMINAL:
                self.refused.append((item, Overtaken()))
                return False
            facts = self._facts if item.actor is SYSTEM and not self.locked.ahead else self._facts_for(item)
            decision = self.decide(program, instance, item.signal, facts)
        except NotApplied as told:
            self._reply(item, instance, receipt, told.answer)
            return False
        except (Refused, Conflict, Forbidden, NotFound) as refusal:
            self._refuse(item, instance, program, refusal)
            return False
        except Exception as failure:
            self._break(item, inconsistency(program, instance.state) or failure)
            return False
        if entry is None:
            entry = self.entries[item.instance] = Entry(instance, [], item.new)
        entry.decisions.append(decision)
        if item.answer is not None:
            self.answers.append((item.answer, decision))
        if receipt is not None:
            self._receive(item, instance, receipt, decision.answer)
        if decision.keep:
            self._keep(item, instance)
        if item.unmade:
            self._uncount(item, instance)
        return bool(decision.needs or decision.children or decision.stops or decision.halts)

    def _receive(self, item: Item, instance: Instance, receipt: Receipt, answer: bytes | None = None) -> None:
        signal = SignalReceipt(item.instance, instance.org, item.receipt or "", receipt.content, answer)
        self.receipts.append(signal)

    # --- machines ------------------------------------------------------------------------------------------------

    async def _take_of_machine(self, session: Session, item: Item) -> None:
        """Decide a trigger or an acknowledgement from the queue. No caller waits: the receipt keeps its answer."""
        known = await self._look_up(session, [item])
        content = self._content_of(item)
        receipt = None if content is None else known[content]
        if receipt is None or self._is_new(item, receipt):
            self._take(item, receipt)

    def _content_of(self, item: Item) -> SignalContent | None:
        if item.receipt is None:
            return None
        found = self.locked.instances.get(item.instance)
        return content_of(item, None if found is None else self.catalog.known(found.definition))

    def _machine_of(self, item: Item) -> tuple[str, str, str]:
        """Organisation, environment and definition."""
        found = self.locked.instances.get(item.instance)
        if found is None:
            return NOWHERE
        environment, _, definition = found.flow.partition(".")
        return found.org, environment, definition

    def _reply(self, item: Item, instance: Instance, receipt: Receipt | None, answer: bytes) -> None:
        """Answer a trigger that changes nothing. The answer is kept, so a repeat gets the same."""
        if receipt is not None:
            self._receive(item, instance, receipt, answer)
        if item.answer is not None:
            self.replies.append((item.answer, answer))

    def _acknowledge(
        self, item: Item, signal: Acknowledged, instance: Instance, program: Program, receipt: Receipt | None
    ) -> None:
        """Settle a delivery, with all that follows from it in the same commit: its gate, a suspension, the next event.

        Nothing of it counts if the next event is refused.
        """
        answer: bytes | None = None
        try:
            change = self.deliveries.settle(item, signal, instance, self.locked.date_of(item.instance))
            if change is not None:
                decisions, answer = self._follow_answer(item, signal, change, instance, program)
                self.deliveries.keep(signal.consumer, change)
                if decisions:
                    self.entries.setdefault(item.instance, Entry(instance, [])).decisions.extend(decisions)
        except (Refused, Conflict, Forbidden, NotFound) as refusal:
            self._refuse(item, instance, program, refusal)
            return
        if receipt is not None:
            self._receive(item, instance, receipt, answer)
        if item.answer is not None:
            self.replies.append((item.answer, answer))

    def _follow_answer(
        self, item: Item, signal: Acknowledged, change: Change, instance: Instance, program: Program
    ) -> tuple[list[Decision], bytes | None]:
        decisions: list[Decision] = []

        def go_on(following: Signal, actor: Actor = SYSTEM) -> Decision:
            now = decisions[-1].instance if decisions else instance
            decisions.append(self.decide(program, now, following, self.facts(item.instance, actor)))
            return decisions[-1]

        entailed = self.deliveries.follows(signal, change)
        if entailed is not None:
            with contextlib.suppress(Refused, Conflict):  # the stay is over, or the instance stands still already
                go_on(entailed)
        if signal.then is None or signal.outcome != PROCESSED:
            return decisions, None
        if self._machine_of(item) not in self.takers:
            raise no_consumer(instance.flow)
        try:
            return decisions, go_on(signal.then, item.actor).answer
        except NotApplied as told:
            return decisions, told.answer

    def _requeue_deliveries(
        self, item: Item, signal: RequeueDeliveries, instance: Instance, program: Program, receipt: Receipt | None
    ) -> bool:
        """Send failed deliveries again. The instance resumes with the last of those that have suspended it."""
        try:
            is_last = self.deliveries.requeue(item, signal, instance, self.locked.date_of(item.instance))
        except (Refused, Conflict, Forbidden, NotFound) as refusal:
            self._refuse(item, instance, program, refusal)
            return False
        if receipt is not None:
            self._receive(item, instance, receipt)
        if item.answer is not None:
            self.replies.append((item.answer, None))
        return is_last and self._take(Item(item.instance, Resume(signal.reason), item.actor))

    # --- facts ---------------------------------------------------------------------------------------------------

    def _facts_for(self, item: Item) -> Facts:
        target = self.catalog.known(item.signal.definition) if type(item.signal) is Migrate else None
        visited = self.visited.get(item.instance)
        return self.facts(item.instance, item.actor, task=self._task_of(item.signal), target=target, visited=visited)

    def facts(self, instance: bytes, actor: Actor = SYSTEM, **known: Any) -> Facts:
        return Facts(self.locked.date_of(instance), actor, max_context=self.max_context, **known)

    async def _complete(self, session: Session, item: Item) -> None:
        """Handle the rare needs of a decision: withdraw unclaimed work, start sub-flows, match early events."""
        entry = self.entries[item.instance]
        before = entry.decisions[-2].instance if len(entry.decisions) > 1 else entry.before
        program = self.catalog.known(before.definition)  # not always that of the first: it may have been migrated
        assert program is not None
        if entry.decisions[-1].stops or entry.decisions[-1].halts:
            await self._take_back_idle(session, program, entry, item)
        await follow(self, session, program, entry, entry.decisions[-1])

    async def _take_back_idle(self, session: Session, program: Program, entry: Entry, item: Item) -> None:
        """Work still in the queue need not be waited for: decide again, knowing which paths are idle."""
        stopped = {*entry.decisions[-1].stops, *entry.decisions[-1].halts}
        mine = {d.path for decision in entry.decisions[:-1] for d in decision.dispatches}  # of this very batch
        idle = await take_idle_work(session, item.instance, stopped) | (mine & stopped)
        if not idle:
            return
        decided = entry.decisions.pop()
        before = entry.decisions[-1].instance if entry.decisions else entry.before
        facts = self.facts(item.instance, item.actor, idle=idle, task=self._task_of(item.signal))
        again = self.decide(program, before, item.signal, facts)
        entry.decisions.append(again)
        self.answers = [(answer, again if d is decided else d) for answer, d in self.answers]

    def _keep(self, item: Item, before: Instance) -> None:
        assert isinstance(item.signal, EventArrived)
        signal, now = item.signal, self.locked.date_of(item.instance)
        until = now + seconds(self.keep_for)
        event = KeptEvent(signal.id, signal.event, signal.raw, item.actor, "", now, until, node=signal.node)
        self.kept.append((item.instance, before.org, event))

    def _uncount(self, item: Item, before: Instance) -> None:
        """Take back the count of a call that was leased with the step and never made."""
        assert isinstance(item.signal, WorkFailed)
        path, step, state = item.signal.path, item.signal.step, before.state
        [at] = {t.at for t in (state.tokens.get(path), state.ghosts.get(path)) if t is not None and t.step == step}
        self.unmade.append((item.instance, at, step))

    # --- what could not be applied ---------------------------------------------------------------------------------

    def _refuse(self, item: Item, instance: Instance, program: Program, refusal: HoldfastError) -> None:
        if isinstance(item.signal, Triggered | Backfilled) and not instance.version:
            self._begin(item, instance, program)
        if item.queued is not None:
            if is_repeated(item.signal, instance, refusal, taken_back=self._is_taken_back(item, instance, program)):
                log.info("A repeated %s of %s changed nothing: %s", item.queued.kind, item.instance.hex(), refusal.code)
                return
            if item.queued.kind not in _SILENT_KINDS and not is_overtaken(item.signal, refusal):
                self._bury(item.queued, refusal)
            return
        if isinstance(item.signal, STALE_IS_FINE):
            self.stale.append(item)
            return
        if isinstance(item.signal, Started) and item.answer is not None and refusal.code in _STARTED_BEFORE:
            self.answers.append((item.answer, None))
            return
        self.refused.append((item, _maybe_applied(refusal) if item.unsure else refusal))

    def _begin(self, item: Item, instance: Instance, program: Program) -> None:
        """Begin an instance whose trigger is refused: it rests in its first state."""
        if item.instance not in self.entries:
            begun = self.decide(program, instance, Started(instance.data), self.facts(item.instance, item.actor))
            self.entries[item.instance] = Entry(instance, [begun])

    def _is_taken_back(self, item: Item, instance: Instance, program: Program) -> bool:
        """A rollback undoes, or has undone, all that a cancel would; one to a save point keeps what lies before it."""
        entry = self.entries.get(item.instance)
        rollback = instance.state.rollback or (None if entry is None else entry.before.state.rollback)
        if rollback is None:
            return item.instance in self.taken_back
        return rollback.to_root or not program.save_points

    def _break(self, item: Item, failure: Exception) -> None:
        """Record an item that cannot be decided: a queued signal is charged with the attempt, never refused for it."""
        log.error("A decision failed on %s", item.instance.hex(), exc_info=failure)
        self.broken.append((item, failure))
        if item.queued is not None:
            self.consumed.remove((item.queued.instance, item.queued.id))
            if not isinstance(failure, HoldfastError):  # those are lasting, and the signal is buried
                self.halted.add(item.instance)

    def _bury(self, queued: QueuedSignal, failure: HoldfastError) -> None:
        self.consumed.remove((queued.instance, queued.id))
        self.buried.append((queued, failure.code, failure))


def _maybe_applied(refusal: HoldfastError) -> StoreError:
    return StoreError(
        f"The connection was lost while it was committed, and now it is refused: {refusal.message}",
        code="OUTCOME_UNKNOWN",
        hint="It may be refused because it was applied the first time: read the instance.",
    )


def _check_node(program: Program, signal: Signal) -> None:
    if type(signal) is EventArrived and signal.node is not None and signal.node not in program.places:
        raise NotFound(
            f"The flow {program.name!r} has no node {signal.node!r}.",
            code="NODE_UNKNOWN",
            hint="Name a node of the version the instance runs on, or leave it out.",
        )


def _moves(signal: Signal) -> bool:
    """Check if a signal brings an event of a machine, from which facts may follow."""
    return type(signal) is Triggered or (type(signal) is Acknowledged and signal.then is not None)


def _keyed_needs(entry: Entry) -> Iterator[EarlyEvents]:
    for decision in entry.decisions:
        yield from (need for need in decision.needs if isinstance(need, EarlyEvents) and need.key is not None)
