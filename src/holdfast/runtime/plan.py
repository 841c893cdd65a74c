"""One commit in the making: which items are decided how, over which locked instances.

`decide` is pure, so a plan can be thrown away and made again at no cost: that is what happens when a guard in the
database says that somebody else was faster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from holdfast.core.decide import decide
from holdfast.core.decision import Decision, Dispatch, EarlyEvents, Facts
from holdfast.core.program import Program
from holdfast.core.signals import Abort, Cancel, ChildFinished, EventArrived, Failure, Started, WorkDone, WorkFailed
from holdfast.core.state import Instance
from holdfast.errors import Conflict, Forbidden, HoldfastError, PayloadError, Refused
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.items import Item, from_queue
from holdfast.store.commit import Batch, ChildStart, Entry
from holdfast.store.locks import Locked, QueuedSignal
from holdfast.store.needs import KeptEvent, find_receipts, take_early_events, take_idle_work
from holdfast.store.session import Session

log = logging.getLogger("holdfast.commit")

STALE_IS_FINE = (WorkDone, WorkFailed)
_SILENT_KINDS = frozenset({"timer", "child_finished", "receipt", "started"})


class Plan:
    def __init__(self, catalog: Catalog, locked: Locked, worker: bytes | None, leases: Callable[[Dispatch], bool]) -> None:
        self.catalog = catalog
        self.locked = locked
        self.worker = worker
        self.may_lease = leases
        self.entries: dict[bytes, Entry] = {}
        self.leased: set[bytes] = set()  # steps leased to us by this commit
        self.answers: list[tuple[asyncio.Future[Decision | None], Decision | None]] = []
        self.refused: list[tuple[Item, Exception]] = []
        self.busy: list[Item] = []
        self.consumed: list[tuple[bytes, bytes]] = []
        self.buried: list[tuple[QueuedSignal, str, HoldfastError]] = []
        self.broken: list[tuple[Item, Exception]] = []
        self.receipts: list[tuple[bytes, str, str, bytes]] = []
        self.kept: list[tuple[bytes, str, bytes, str, bytes | None, bytes | None]] = []
        self.children: list[ChildStart] = []
        self.stale: list[Item] = []  # results that came too late

    async def make(self, session: Session, items: list[Item]) -> None:
        await self._load_programs(session, items)
        known = await find_receipts(session, [(i.instance, i.receipt[0]) for i in items if i.receipt is not None])
        for queued in self.locked.signals:
            await self._take_queued(session, queued)
        for item in items:
            if item.receipt is not None and (item.instance, item.receipt[0]) in known:
                self._repeat(item, known[item.instance, item.receipt[0]])
            else:
                await self._take(session, item)

    def batch(self) -> Batch:
        return Batch(
            self.locked.now, self.worker, self._lease, list(self.entries.values()), self.consumed, self.receipts, self.kept,
            self.children,
        )  # fmt: skip

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.consumed or self.kept)

    def _lease(self, dispatch: Dispatch) -> bool:
        if not self.may_lease(dispatch):
            return False
        self.leased.add(dispatch.step)
        return True

    async def _load_programs(self, session: Session, items: list[Item]) -> None:
        instances = [*self.locked.instances.values(), *(i.fresh for i in items if i.fresh is not None)]
        for definition in {i.definition for i in instances}:
            if self.catalog.known(definition) is None:
                await self.catalog.program(session, definition, inside=True)

    # --- one item ------------------------------------------------------------------------------------------------

    async def _take_queued(self, session: Session, queued: QueuedSignal) -> None:
        self.consumed.append((queued.instance, queued.id))
        try:
            item = from_queue(queued, self.locked.inputs.get(queued.instance))
        except PayloadError as failure:
            self._bury(queued, failure)
            return
        await self._take(session, item)

    def _repeat(self, item: Item, digest: bytes | None) -> None:
        """The same signal id again: the same body is the same signal, another one is a conflict."""
        assert item.receipt is not None
        if digest == item.receipt[1]:
            if item.answer is not None:
                self.answers.append((item.answer, None))
            return
        self.refused.append(
            (
                item,
                Conflict(
                    f"A signal with the id {item.receipt[0]} was already received with another body.",
                    code="SIGNAL_ID_REUSED",
                    hint="Use a new id for a new signal.",
                ),
            )
        )

    async def _take(self, session: Session, item: Item) -> None:
        instance = self._present(item)
        if instance is None:
            self.busy.append(item)
            return
        program = self.catalog.known(instance.definition)
        assert program is not None
        try:
            decision = await self._decide(session, program, instance, item)
            await self._record(session, program, instance, item, decision)
        except (Refused, Conflict, Forbidden) as refusal:
            self._refuse(item, refusal)
        except HoldfastError:
            raise
        except Exception as failure:
            log.exception("A decision failed on %s", item.instance.hex())
            self.broken.append((item, failure))
            if item.queued is not None:
                self.consumed.remove((item.queued.instance, item.queued.id))

    def _present(self, item: Item) -> Instance | None:
        entry = self.entries.get(item.instance)
        if entry is not None:
            return entry.decisions[-1].instance
        return item.fresh or self.locked.instances.get(item.instance)

    async def _decide(self, session: Session, program: Program, instance: Instance, item: Item) -> Decision:
        facts = Facts(self.locked.now, item.actor)
        decision = decide(program, instance, item.signal, facts)
        if isinstance(item.signal, Cancel | Abort) and decision.instance.state.tokens:
            idle = await take_idle_work(session, item.instance)
            if idle:
                decision = decide(program, instance, item.signal, Facts(self.locked.now, item.actor, idle=idle))
        return decision

    async def _record(self, session: Session, program: Program, before: Instance, item: Item, decision: Decision) -> None:
        entry = self.entries.get(item.instance)
        if entry is None:
            entry = self.entries[item.instance] = Entry(before, [], item.new)
        entry.decisions.append(decision)
        if decision.children:
            decision = await self._start_children(session, program, before, entry, decision)
        if decision.keep:
            self._keep(item, before)
        if item.receipt is not None:
            self.receipts.append((item.instance, before.org, *item.receipt))
        if item.answer is not None:
            self.answers.append((item.answer, decision))
        if decision.needs:
            await self._early(session, program, entry, decision)

    def _keep(self, item: Item, before: Instance) -> None:
        assert isinstance(item.signal, EventArrived)
        actor = msgspec.json.encode(item.actor)
        self.kept.append((item.instance, before.org, item.signal.id, item.signal.event, item.signal.raw, actor))

    async def _early(self, session: Session, program: Program, entry: Entry, decision: Decision) -> None:
        """Waits that just opened: events that came before them are matched in this very commit."""
        needs = [n for n in decision.needs if isinstance(n, EarlyEvents)]
        for event in await take_early_events(session, entry.before.id, entry.before.org, needs):
            present = entry.decisions[-1].instance
            try:
                following = decide(program, present, _arrived(event), Facts(self.locked.now, event.actor))
            except (Refused, Conflict, Forbidden):
                continue
            entry.decisions.append(following)
            if following.needs:
                await self._early(session, program, entry, following)

    async def _start_children(
        self, session: Session, program: Program, before: Instance, entry: Entry, decision: Decision
    ) -> Decision:
        """Resolve sub-flows; one that does not exist fails the step that wanted it."""
        for child in decision.children:
            try:
                found = await self.catalog.find(session, before.org, child.flow, child.version, inside=True)
            except HoldfastError as failure:
                present = entry.decisions[-1].instance
                lost = ChildFinished(child.token, "failed", None, Failure(failure.code, failure.message))
                decision = decide(program, present, lost, Facts(self.locked.now))
                entry.decisions.append(decision)
                continue
            self.children.append(
                ChildStart(
                    child.id, before.org, found.id, found.name, found.version, child.input, before.id, child.token, before.trace
                )
            )
        return entry.decisions[-1]

    # --- what could not be applied ---------------------------------------------------------------------------------

    def _refuse(self, item: Item, refusal: HoldfastError) -> None:
        if item.queued is not None:
            if item.queued.kind not in _SILENT_KINDS:
                self._bury(item.queued, refusal)
            return
        if isinstance(item.signal, STALE_IS_FINE):
            self.stale.append(item)
            return
        if isinstance(item.signal, Started) and item.answer is not None and refusal.code == "ALREADY_STARTED":
            self.answers.append((item.answer, None))
            return
        self.refused.append((item, refusal))

    def _bury(self, queued: QueuedSignal, failure: HoldfastError) -> None:
        self.consumed.remove((queued.instance, queued.id))
        self.buried.append((queued, failure.code, failure))


def _arrived(event: KeptEvent) -> EventArrived:
    return EventArrived(event.id, event.event, event.payload, None, event.token, kept=event.from_inbox)

