"""A world around one document: people call verbs, edit, decide and re-run, and the promises of gates are watched.

The watch keeps books of its own, from the rows that are opened and closed; it asks nothing of `core/documents`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from core_random_documents import RandomDocument
from core_run import ID, new_instance
from core_world import ACTIONS, World

from holdfast.core.documents.stance import stance
from holdfast.core.model.decision import Decision, Opened
from holdfast.core.model.program import Program
from holdfast.core.model.signals import (
    Decided,
    EntityChanged,
    Failure,
    Rerun,
    Signal,
    Started,
    VerbCalled,
    WorkFailed,
)
from holdfast.core.model.state import ROOT
from holdfast.core.model.status import TERMINAL, InstanceStatus
from holdfast.core.replay.replay import replay
from holdfast.core.signals.rerun import Past, rerun_of
from holdfast.errors import HoldfastError

Point = tuple[int, int]
TARGETS = {"withdraw": "sys:state:draft", "cancel": "sys:state:cancelled"}


class DocumentWorld(World):
    def __init__(self, program: Program, seed: int, document: RandomDocument) -> None:
        super().__init__(program, seed)
        self.document = document
        self.version = 0  # of the document
        self.given: dict[bytes, tuple[str, Point]] = {}  # approvals of this lap: the slot, and when they were asked
        self.gates = Counter[str]()  # visits of gates in this lap
        self.entered = set[int]()  # the hops at which a gate was entered
        self.points: dict[bytes, Point] = {}  # when each visit began
        self.signal: Signal = Started(b"{}")
        self.seen = Counter[str]()

    @property
    def actions(self) -> Sequence[Callable[[Any], None]]:
        return DOCUMENT_ACTIONS

    # --- what people do -----------------------------------------------------------------------------------------------

    def call_verb(self) -> None:
        offered = stance(self.program, self.instance)
        names = [*([] if offered is None else offered.verbs), *TARGETS, "submit0", "submit1", "approve0", "approved"]
        self.events += 1
        self.version += self.random.choice([0, 1])
        raw = self.random.choice([None, self._output()])
        before = self.instance
        signal = VerbCalled(b"%016d" % self.events, self.random.choice(names), self.version, raw)
        if self.deliver(signal):
            self.seen["verbs"] += 1
            assert offered is not None
            assert signal.verb in offered.verbs
            assert before.status in (InstanceStatus.RUNNING, InstanceStatus.DLQ)
        elif before == self.instance:
            self.seen["verbs refused"] += 1

    def submit(self) -> None:
        """Call the verb that leads on, so that executions do not stay in the draft."""
        offered = stance(self.program, self.instance)
        names = [] if offered is None else [verb for verb in offered.verbs if verb.startswith("submit")]
        if names:
            self.events += 1
            self.version += 1
            self.deliver(VerbCalled(b"%016d" % self.events, names[0], self.version))

    def approve(self) -> None:
        """Say yes, so that executions come to their gates."""
        if self.tasks:
            self.deliver(Decided(b"decision" * 2, self.random.choice(sorted(self.tasks)), "approved"))

    def edit(self) -> None:
        self.version += self.random.choice([1, 1, 1, 0])
        late = self.random.choice([0, 0, 0, 1])
        origin = self.random.choice([None, None, ID])
        material = self.random.choice([True, True, False])
        before = self.instance.entity_version
        if self.deliver(EntityChanged(max(self.version - late, 0), "update", material, origin)):
            self.seen["edits"] += 1
            assert self.instance.entity_version == max(before, self.version - late)

    def run_again(self) -> None:
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self._run_one_again()

    def _run_one_again(self) -> None:
        rows = list(self.table.rows.values())
        node = self.random.choice(sorted({row.node for row in rows if row.kind == "forward"} | {"sys:gate:approve0"}))
        past = Past(self.program, rows, new_instance(self.program, self.input), self.earlier)
        given = self.random.choice([None, None, b'{"n":5}'])
        try:
            signal = rerun_of(past, self.instance.state, self.instance.version, node, None, given, None)
        except HoldfastError as refusal:
            self.seen[refusal.code] += 1
            return
        if self.deliver(signal):
            self.seen["re-runs"] += 1

    def fail_work(self) -> None:
        if self.work:
            path = self.random.choice(sorted(self.work))
            work = self.work[path]
            work.claimed = True
            self.deliver(WorkFailed(path, work.step, work.fence, _BAD, work.calls, False, work.input))

    # --- the watch ----------------------------------------------------------------------------------------------------

    def deliver(self, signal: Signal) -> bool:
        outer, self.signal = self.signal, signal
        try:
            return super().deliver(signal)
        finally:
            self.signal = outer

    def _apply(self, decision: Decision) -> None:
        if isinstance(self.signal, Rerun):
            self._go_back(self.signal)
        moments = [(row.ordinal, 0, row) for row in decision.opened] + [
            (row.ordinal, 1, row) for row in decision.closed
        ]
        for _, closes, row in sorted(moments, key=lambda moment: moment[:2]):
            if closes:
                self._closed(row)
            else:
                self._opened(row)
        super()._apply(decision)

    def _go_back(self, signal: Rerun) -> None:
        """Everything since the step that runs again is to be asked again; a gate that failed stays entered."""
        since = self.points[signal.step]
        self.given = {step: (slot, point) for step, (slot, point) in self.given.items() if point < since}
        self.gates.clear()

    def _opened(self, row: Opened) -> None:
        self.points[row.id] = (row.version, row.ordinal)
        if row.kind == "control":
            if row.node == "@interrupt" or (row.node == "@expire" and b'"node":"' in (row.detail or b"")):
                self._new_lap()
                self.seen["interrupts"] += row.node == "@interrupt"
            return
        if row.node.startswith("sys:"):
            assert row.path == ROOT, f"{row.node} was entered in a branch"
        if row.node.startswith("sys:state:"):
            self._new_lap()
        if row.node.startswith("sys:gate:") and row.hop not in self.entered:  # else it runs again where it failed
            self.entered.add(row.hop)
            self._enter_gate(row.node)

    def _enter_gate(self, gate: str) -> None:
        self.seen["gates"] += 1
        self.gates[gate] += 1
        assert self.gates.total() == 1, "each gate once per lap, and only one of the two"
        if gate in self.document.demanded:
            slot = self.document.slots[gate]
            given = sum(found == slot for found, _ in self.given.values())
            assert given >= self.document.demanded[gate], f"{gate} was entered past an approval"

    def _closed(self, row: Any) -> None:
        place = self.program.places.get(row.node)
        if place is None or not place.traits.asks_person:
            return
        if row.status in ("confirmed", "rejected", "completed"):
            assert isinstance(self.signal, Decided), f"{self.signal} decided an approval"
        if row.status == "confirmed":
            self.given[row.id] = (row.node.split(":")[1], self.points[row.id])

    def _new_lap(self) -> None:
        self.given.clear()
        self.gates.clear()

    def check(self) -> None:
        super().check()
        tokens = self.instance.state.tokens
        if any(token.node.startswith("sys:") for token in tokens.values()):
            assert list(tokens) == [ROOT], "beyond a gate or a state there is one token, the root's"
        rebuilt = replay(
            self.program,
            self.table.rows.values(),
            instance=new_instance(self.program, self.input),
            programs=self.earlier,
        )
        found = stance(self.program, self.instance)
        assert found == stance(self.program, rebuilt), "replay must equal the stance"
        if found is not None:
            self._check_stance(found)

    def _check_stance(self, found: Any) -> None:
        order = ("editable", "amend_only", "locked")
        nodes = {token.node for token in self.instance.state.tokens.values()}
        for region in self.document.graph.regions:
            if nodes & set(region.nodes):
                assert order.index(found.window) >= order.index(region.window), "never looser than any region's"
                assert not region.stable or found.stable
                if self.instance.status is InstanceStatus.RUNNING and self.instance.state.stopping is None:
                    assert set(region.verbs) <= set(found.verbs)
        assert self.instance.status not in TERMINAL


_BAD = Failure("BAD", "bad luck")

DOCUMENT_ACTIONS = (
    *ACTIONS,
    *[DocumentWorld.submit] * 8,
    *[DocumentWorld.approve] * 14,
    *[DocumentWorld.edit] * 4,
    *[DocumentWorld.call_verb] * 3,
    *[DocumentWorld.run_again] * 5,
    *[DocumentWorld.fail_work] * 2,
    *[DocumentWorld.resume] * 4,
)
