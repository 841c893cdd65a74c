"""One commit in the making: which items are decided how, over which locked instances.

`decide` is pure, so a plan can be thrown away and made again at no cost: that is what happens when a guard in the
database says that somebody else was faster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.decide import decide
from holdfast.core.decision import Decision, Dispatch, EarlyEvents, Facts
from holdfast.core.program import Program
from holdfast.core.signals import (
    SYSTEM,
    Abort,
    Cancel,
    ChildFinished,
    EventArrived,
    Failure,
    Started,
    WorkDone,
    WorkFailed,
)
from holdfast.core.state import Instance
from holdfast.errors import Conflict, Forbidden, HoldfastError, PayloadError, Refused
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.items import Item, from_queue
from holdfast.store.commit import Batch, ChildStart, Entry
from holdfast.store.locks import Locked, QueuedSignal
from holdfast.store.needs import KeptEvent, Receipt, SignalContent, find_receipts, take_early_events, take_idle_work
from holdfast.store.session import Session

log = logging.getLogger("holdfast.commit")

STALE_IS_FINE = (WorkDone, WorkFailed)
_SILENT_KINDS = frozenset({"timer", "child_finished", "receipt", "started"})


class Plan:
    def __init__(
        self, catalog: Catalog, locked: Locked, worker: bytes | None, leases: Callable[[Dispatch], bool]
    ) -> None:
        self.catalog = catalog
        self.locked = locked
        self.worker = worker
        self.may_lease = leases
        self._facts = Facts(locked.now)
        self.entries: dict[bytes, Entry] = {}
        self.leased: set[bytes] = set()  # steps leased to us by this commit
        self.answers: list[tuple[asyncio.Future[Any], Decision | None]] = []
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
        known = await find_receipts(session, [content for i in items if (content := _content(i)) is not None])
        for queued in self.locked.signals:
            await self._take_queued(session, queued)
        for item in items:
            receipt = None if item.receipt is None else known[item.instance, item.receipt]
            if receipt is not None and receipt.earlier is not None:
                self._repeat(item, receipt)
                continue
            needy = self._take(item)
            if receipt is not None and item.instance in self.entries:
                self.receipts.append(
                    (item.instance, self.entries[item.instance].before.org, item.receipt or "", receipt.content)
                )
            if needy:
                await self._complete(session, item)

    def make_unlocked(self, items: list[Item]) -> bool:
        """Decide without a transaction; False when a decision turns out to need one."""
        return not (any(self._take(item) for item in items) or self.broken)

    def batch(self) -> Batch:
        return Batch(
            self.locked.now, self.worker, self._lease, list(self.entries.values()), self.consumed, self.receipts,
            self.kept, self.children,
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
        if self._take(item):
            await self._complete(session, item)

    def _repeat(self, item: Item, receipt: Receipt) -> None:
        """The same signal id again: the same body is the same signal, another one is a conflict."""
        if receipt.earlier == receipt.content:
            if item.answer is not None:
                self.answers.append((item.answer, None))
            return
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

    def _take(self, item: Item) -> bool:
        """Decide upon one item. True: the decision asks for something that must be fetched before the commit."""
        entry = self.entries.get(item.instance)
        if entry is not None:
            instance = entry.decisions[-1].instance
        else:
            found = item.fresh or self.locked.instances.get(item.instance)
            if found is None:
                self.busy.append(item)
                return False
            instance = found
        program = self.catalog.known(instance.definition)
        assert program is not None
        try:
            facts = self._facts if item.actor is SYSTEM else Facts(self.locked.now, item.actor)
            decision = decide(program, instance, item.signal, facts)
        except (Refused, Conflict, Forbidden) as refusal:
            self._refuse(item, refusal)
            return False
        except Exception as failure:
            log.exception("A decision failed on %s", item.instance.hex())
            self.broken.append((item, failure))
            if item.queued is not None:
                self.consumed.remove((item.queued.instance, item.queued.id))
            return False
        if entry is None:
            entry = self.entries[item.instance] = Entry(instance, [], item.new)
        entry.decisions.append(decision)
        if item.answer is not None:
            self.answers.append((item.answer, decision))
        if decision.keep:
            self._keep(item, instance)
        return bool(decision.needs or decision.children or isinstance(item.signal, Cancel | Abort))

    async def _complete(self, session: Session, item: Item) -> None:
        """The seldom rest: work nobody has claimed, sub-flows, events that came early."""
        entry = self.entries[item.instance]
        program = self.catalog.known(entry.before.definition)
        assert program is not None
        if isinstance(item.signal, Cancel | Abort):
            await self._take_back_idle(session, program, entry, item)
        decision = entry.decisions[-1]
        if decision.children:
            await self._start_children(session, program, entry, decision)
        if decision.needs:
            await self._early(session, program, entry, decision)

    async def _take_back_idle(self, session: Session, program: Program, entry: Entry, item: Item) -> None:
        """Work still in the queue need not be waited for: decide again, knowing which paths are idle."""
        idle = await take_idle_work(session, item.instance)
        if not idle:
            return
        decided = entry.decisions.pop()
        before = entry.decisions[-1].instance if entry.decisions else entry.before
        again = decide(program, before, item.signal, Facts(self.locked.now, item.actor, idle=idle))
        entry.decisions.append(again)
        self.answers = [(answer, again if d is decided else d) for answer, d in self.answers]

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

    async def _start_children(self, session: Session, program: Program, entry: Entry, decision: Decision) -> None:
        """Resolve sub-flows; one that does not exist fails the step that wanted it."""
        parent = entry.before
        for child in decision.children:
            try:
                found = await self.catalog.find(session, parent.org, child.flow, child.version, inside=True)
            except HoldfastError as failure:
                lost = ChildFinished(child.token, "failed", None, Failure(failure.code, failure.message))
                entry.decisions.append(decide(program, entry.decisions[-1].instance, lost, Facts(self.locked.now)))
                continue
            self.children.append(
                ChildStart(
                    child.id,
                    parent.org,
                    found.id,
                    found.name,
                    found.version,
                    child.input,
                    parent.id,
                    child.token,
                    parent.trace,
                )
            )

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


def _content(item: Item) -> SignalContent | None:
    if item.receipt is None or not isinstance(item.signal, EventArrived):
        return None
    signal = item.signal
    return SignalContent(item.instance, item.receipt, signal.event, signal.raw, signal.node)
