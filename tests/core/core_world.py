"""A world around one instance, in memory: work rows, timers, children, effects, an inbox — and bad luck.

Whatever the store guards (fences of work rows, ids of signals) is guarded here too; whatever only the core can know
(which wait is over, which token moves) is left to the core. After every decision the invariants are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
from core_run import new_instance, projection
from core_table import StepTable

from holdfast.core.decide import decide, decide_at_length
from holdfast.core.model.decision import (
    Call,
    Decision,
    EarlyEvents,
    Facts,
    History,
    LastCall,
    Letter,
    ParkedTimers,
    TaskOpened,
    TaskRenamed,
)
from holdfast.core.model.ids import token_id
from holdfast.core.model.program import Program
from holdfast.core.model.rows import StepRow
from holdfast.core.model.signals import (
    SYSTEM,
    Abort,
    Actor,
    CallDue,
    CallsSpent,
    Cancel,
    ChildFinished,
    Decided,
    EntityChanged,
    EventArrived,
    EventsExpired,
    Failure,
    ForceFail,
    HistoryRead,
    ReceiptArrived,
    Requeue,
    Resume,
    Signal,
    Started,
    Suspend,
    TimerDue,
    VerbCalled,
    WorkDone,
    WorkFailed,
)
from holdfast.core.model.state import encode_state
from holdfast.core.model.status import INSTANCE_TRANSITIONS, PHASE_TRANSITIONS, TERMINAL, InstanceStatus, Phase
from holdfast.core.replay.replay import replay
from holdfast.errors import Conflict, Forbidden, Refused
from holdfast.graph.model import Node

ACTORS = (SYSTEM, Actor("ada", ("act",)))
DATED = {"at": "2030-01-01", "key": "k"}
OUTPUTS: tuple[Any, ...] = ({}, {"n": 2}, {"n": 9, "ok": True}, {"kind": "b", "key": "k"}, DATED, DATED, None, 7)
UNKNOWN = "nonsense"
# Signals whose repeats only their ids tell apart, or that may come again.
TOLD_APART = (
    EventArrived, EventsExpired, Requeue, Suspend, Resume, Cancel, Abort, ForceFail, VerbCalled, EntityChanged,
)  # fmt: skip


class Work(msgspec.Struct):
    step: bytes
    fence: int
    calls: int
    input: bytes
    call: bool
    claimed: bool = False


class World:
    def __init__(self, program: Program, seed: int, *, fast: bool = True) -> None:
        self.random = Random(seed)
        self.program = program
        self.decide = decide if fast else decide_at_length
        self.input = self.random.choice([o for o in OUTPUTS if o is not None])
        self.instance = new_instance(program, self.input)
        self.table = StepTable()
        self.now = 800_000_000_000_000
        self.work: dict[str, Work] = {}
        self.fences: dict[str, int] = {}  # the last one of each path
        self.timers: dict[bytes, TimerDue] = {}
        self.children: dict[bytes, str] = {}
        self.effects: dict[bytes, str] = {}
        self.tasks: dict[bytes, str] = {}  # open ones, by node
        self.inbox: list[EventArrived] = []
        self.plain = Counter[str]()  # decisions made the short way, by kind
        self.applied: list[Signal] = []
        self.events = 0
        self.letters: dict[bytes, Letter] = {}
        self.forced = False
        self.undoes: dict[bytes, bytes] = {}  # compensations as they were planned, and what each takes back
        self.undone: list[bytes] = []  # in the order they began
        self.earlier: dict[bytes, Program] = {}  # graphs it was migrated from
        self.target: Program | None = None  # the graph it is to be migrated to
        self.entity: Any = None  # the document
        self.org: dict[str, Any] = {}
        self.actors: tuple[Actor, ...] = ACTORS
        self.names = self._event_names()

    def _event_names(self) -> list[str]:
        named = {on for place in self.program.places.values() for on in place.ways}
        waits = {place.node.wait.event for place in self.program.places.values() if place.node.wait is not None}
        return sorted(named | waits | {UNKNOWN})

    # --- one execution ----------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        self.deliver(Started(msgspec.json.encode(self.input)))
        for _ in range(steps):
            if self.instance.status in TERMINAL:
                break
            self.now += self.random.randrange(1, 60_000_000)
            self.random.choice(self.actions)(self)
            if self.instance.status not in TERMINAL:
                assert self.instance.state.early == len(self.inbox), "an instance counts what is kept for it"
        self._finish()

    @property
    def actions(self) -> Sequence[Callable[[Any], None]]:
        return ACTIONS

    def _finish(self) -> None:
        """Whatever state it is in: it can be cancelled, and once the handlers are back it is over."""
        if self.instance.status not in TERMINAL and not self._is_stopping:
            self.deliver(Cancel("enough"))
        self._work_off()
        self.check_taken_back()
        for letter in list(self.letters.values()):
            if letter.source == "compensation":
                self._compensate_again(letter)
        self._try_a_finished_one()

    @property
    def _is_stopping(self) -> bool:
        return self.instance.state.stopping is not None or self.instance.state.rollback is not None

    def _work_off(self) -> None:
        while self.instance.status not in TERMINAL or self.instance.state.tokens:
            self.resume()
            self.finish_work()
            self.fire_timer()
            self.finish_child()

    def _compensate_again(self, letter: Letter) -> None:
        undo = self.table.undo(self.table.rows[letter.step])
        before = self.instance.status
        assert self.deliver(Requeue(letter.id, letter.step, letter.input, undo=undo))
        assert not self.deliver(Requeue(letter.id, letter.step, letter.input, undo=undo)), "it is under way"
        self._work_off()
        assert self.instance.status == before

    def check_taken_back(self) -> None:
        """Of what was done since the save point nothing stands; compensations ran once each, newest first."""
        rows = sorted(self.table.rows.values(), key=lambda row: (row.opened_version, row.opened_ordinal))
        turn = _turn_back(rows)
        if turn is None or self.instance.status is InstanceStatus.ABORTED:
            return
        begun, first, is_to_root = turn
        assert all(row.opened_version <= begun or row.kind != "forward" for row in rows), "forward after the rollback"
        if self.forced:
            return
        points = [row for row in rows if row.kind == "forward" and self._node(row).kind == "save_point"]
        since = max(map(_moment, points), default=(0, 0)) if not is_to_root else (0, 0)
        past = [row for row in rows if row.kind == "forward" and _moment(row) > since]
        for row in past:
            assert row.status not in ("completed", "confirmed", "running", "pending"), f"{row.node} was left behind"
        late = {detail["step"] for detail in map(_late, rows) if detail.get("done")}
        done = [
            row for row in past
            if self._node(row).undo is not None and (row.status in ("rolled_back", "failed") or row.id.hex() in late)
        ]  # fmt: skip
        promised = [row.id for row in sorted(done, key=lambda row: (row.id != first, _from_the_end(row)))]
        assert [self.undoes[step] for step in self.undone] == promised, "taken back in the promised order, each once"

    def _node(self, row: StepRow) -> Node:
        return self.program.places[row.node].node

    def _try_a_finished_one(self) -> None:
        for signal in (*self.applied[-5:], Cancel(), Resume()):
            assert not self.deliver(signal), "a terminal status is final"

    def requeue(self) -> None:
        dead = [letter for letter in self.letters.values() if letter.source == "step"]
        if dead:
            letter = self.random.choice(dead)
            raw = self.random.choice([None, self._output()])
            self.deliver(Requeue(letter.id, letter.step, raw))

    # --- what can happen --------------------------------------------------------------------------------------------

    def finish_work(self) -> None:
        if not self.work:
            return
        path = self.random.choice(sorted(self.work))
        work = self.work[path]
        work.claimed = True
        if work.call and self.random.random() < 0.7:
            self.deliver(CallDue(path, work.step, work.fence, work.calls, work.input))
        elif self.random.random() < 0.8:
            self.deliver(WorkDone(path, work.step, work.fence, self._output(), work.calls))
        else:
            retryable = self.random.random() < 0.8
            failure = Failure("BAD", "bad luck")
            self.deliver(WorkFailed(path, work.step, work.fence, failure, work.calls, retryable, work.input))

    def lose_lease(self) -> None:
        """Reclaimed by somebody else; the zombie's result is refused by the work row, the burnt call counts."""
        if self.work:
            path = self.random.choice(sorted(self.work))
            work = self.work[path]
            work.fence += 1
            work.calls += 1
            self.fences[path] = work.fence
            self.table.claim(work.step, work.fence)

    def fire_timer(self) -> None:
        if self.timers:
            id = self.random.choice(sorted(self.timers))
            if self.deliver(self.timers[id]):
                self.timers.pop(id, None)

    def send_event(self) -> None:
        self.events += 1
        raw = self.random.choice([None, self._output()])
        token = node = None
        if self.instance.state.tokens and self.random.random() < 0.5:
            path, at = self.random.choice(sorted(self.instance.state.tokens.items(), key=lambda item: item[0]))
            token = self.random.choice([None, token_id(path, at.hop), token_id(path, at.hop - 1)])
            node = self.random.choice([None, at.node])
        name = self.random.choice(self.names)
        self.deliver(EventArrived(b"%016d" % self.events, name, raw, node, token))

    def decide_task(self) -> None:
        if self.tasks:
            task = self.random.choice(sorted(self.tasks))
            ways = sorted(self.program.places[self.tasks[task]].ways)
            decision = self.random.choice([*ways, "confirmed", "rejected", UNKNOWN])
            raw = self.random.choice([None, self._output()])
            self.deliver(Decided(b"decision" * 2, task, decision, raw, "because"))

    def finish_child(self) -> None:
        if self.children:
            child = self.random.choice(sorted(self.children))
            status = self.random.choice(["completed", "completed", "failed", "cancelled"])
            if self.deliver(ChildFinished(self.children[child], status, self._output(), None, child)):
                self.children.pop(child, None)

    def deliver_effect(self) -> None:
        if self.effects:
            effect = self.random.choice(sorted(self.effects))
            failure = self.random.choice([None, None, Failure("BOUNCED", "no")])
            raw = self.random.choice([None, self._output()])
            if self.deliver(ReceiptArrived(self.effects[effect], raw, failure, effect)):
                self.effects.pop(effect, None)

    def repeat_something(self) -> None:
        """What was applied once is stale for ever; events are told apart by their id, before they come here."""
        if self.applied:
            signal = self.random.choice([self.applied[-1], self.random.choice(self.applied)])
            assert not self.deliver(signal), "a repeated signal must be refused"

    def expire_kept(self) -> None:
        """What nobody took in time; the world forgets it first, as the upkeep does."""
        if self.inbox:
            gone = self.inbox.pop(0)
            self.deliver(EventsExpired(({"event": gone.event},)))

    def control(self) -> None:
        version = self.random.choice([None, None, self.instance.version, 0])
        kinds: list[Any] = [Suspend, Suspend, Resume, Resume, Resume]
        if self.random.random() < 0.1:
            kinds = [Cancel, Abort, ForceFail]
        self.deliver(self.random.choice(kinds)(if_version=version))

    def resume(self) -> None:
        if self.instance.status in (InstanceStatus.SUSPENDED, InstanceStatus.DLQ):
            self.deliver(Resume())

    def _output(self) -> bytes:
        return msgspec.json.encode(self.random.choice(OUTPUTS))

    # --- a commit ---------------------------------------------------------------------------------------------------

    def deliver(self, signal: Signal) -> bool:
        """Decide, perhaps crash before the commit and decide again, apply. False: the signal was refused."""
        actor = self.random.choice(self.actors)
        idle = frozenset(path for path, work in self.work.items() if not work.claimed)
        calls = isinstance(signal, CallDue)
        facts = Facts(
            self.now, actor, entity=self.entity, org=self.org, idle=idle, inline_calls=calls, target=self.target
        )
        before = encode_state(self.instance.state)
        try:
            decision = self._decide(signal, facts)
            if self.random.random() < 0.1:  # a crash: nothing was written, the same signal comes again
                assert self._decide(signal, facts) == decision, "the same in, the same out"
        except (Refused, Conflict, Forbidden):
            assert encode_state(self.instance.state) == before
            return False
        assert encode_state(self.instance.state) == before, "decide changes nothing in place"
        self._apply(decision)
        self.forced = self.forced or isinstance(signal, ForceFail)
        for need in decision.needs:
            if isinstance(need, LastCall):
                self._give_up(need)
        if any(isinstance(need, History) for need in decision.needs):
            past = self.table.history()
            self.random.shuffle(past)  # the store promises no order
            assert self.deliver(HistoryRead(past))
        if not isinstance(signal, TOLD_APART):
            self.applied.append(signal)
        if decision.keep and isinstance(signal, EventArrived):
            self.inbox.append(signal)
        self._feed_early(decision)
        return True

    def _give_up(self, need: LastCall) -> None:
        row = self.table.rows[need.step]
        failure = msgspec.json.decode(row.error or b"", type=Failure)
        assert self.deliver(CallsSpent(need.path, need.step, failure, row.input))

    def _decide(self, signal: Signal, facts: Facts) -> Decision:
        """A call's transaction: answer what is needed until nothing is."""
        while True:
            decision = self.decide(self.program, self.instance, signal, facts)
            if decision.plain:
                self.plain[decision.plain] += 1
                at_length = decide_at_length(self.program, self.instance, signal, facts)
                assert msgspec.structs.replace(decision, plain="") == at_length, "the short way, the same decision"
                assert _inputs_to_come(decision) == _inputs_to_come(at_length), "and the same in memory"
            calls = [need for need in decision.needs if isinstance(need, Call)]
            if not calls:
                return decision
            answers = {call.step: b'{"n":3}' for call in calls}
            facts = msgspec.structs.replace(facts, answers={**facts.answers, **answers})

    def _feed_early(self, decision: Decision) -> None:
        """What came early, in the order it came; then the timers that waited for it."""
        wanted = [need for need in decision.needs if isinstance(need, EarlyEvents) and need.key is None]
        for kept in [event for event in self.inbox if any(event.event == need.event for need in wanted)]:
            for token in [need.token for need in wanted if need.event == kept.event]:
                if kept not in self.inbox:  # taken by what the one before set in motion
                    break
                self.inbox.remove(kept)
                if not self.deliver(msgspec.structs.replace(kept, token=token, node=None, kept=True)):
                    self.inbox.insert(0, kept)
        for need in decision.needs:
            if isinstance(need, ParkedTimers):
                for _, timer in need.timers:
                    self.deliver(TimerDue(timer.path, timer.wait, timer.purpose))

    def _apply(self, decision: Decision) -> None:
        before, after = self.instance, decision.instance
        assert after.version == before.version + 1
        assert after.status == before.status or after.status in INSTANCE_TRANSITIONS[before.status]
        for path, token in after.state.tokens.items():
            old = before.state.tokens.get(path)
            if old is not None and old.hop == token.hop and old.phase != token.phase:
                assert token.phase in PHASE_TRANSITIONS[old.phase], f"{old.phase} → {token.phase}"
        self.table.apply(decision, self.now)
        self.instance = self.table.stored(after)
        self._apply_work(decision)
        self._apply_undoing(decision)
        self._apply_rest(decision)
        if not any(isinstance(need, History | LastCall) for need in decision.needs):
            self.check()

    def _apply_undoing(self, decision: Decision) -> None:
        """The first call of each compensation, in the order they come: never two at a time."""
        for row in decision.opened:
            if row.kind == "compensate":
                self.undoes[row.id] = bytes.fromhex(msgspec.json.decode(row.detail or b"{}")["undoes"])
        begun = [d.step for d in decision.dispatches if d.step in self.undoes and d.calls == 1]
        assert len(begun) <= 1
        self.undone.extend(begun)

    def _apply_work(self, decision: Decision) -> None:
        for released in decision.released:
            work = self.work.pop(released.path, None)
            assert not released.fence or (work is not None and work.fence == released.fence), "a foreign work row"
        for d in decision.dispatches:
            work = self.work.pop(d.path, None)
            assert (work.fence if work else 0) == d.held, "a dispatch over a work row it does not hold"
            assert d.fence > d.held
            assert d.fence > self.fences.get(d.path, 0), "a fence that another call on the path has had"
            self.fences[d.path] = d.fence
            input = d.input if d.input is not None else self.table.rows[d.step].input
            self.work[d.path] = Work(d.step, d.fence, d.calls, input or b"null", d.call)

    def _apply_rest(self, decision: Decision) -> None:
        for timer in decision.timers:
            assert timer.id not in self.timers
            self.timers[timer.id] = TimerDue(timer.path, timer.wait, timer.purpose)
        for id in decision.timers_ended:
            self.timers.pop(id, None)
        for child in decision.children:
            self.children[child.id] = child.token
        waiting = {wait.ref for token in self.instance.state.tokens.values() for wait in token.waits}
        for outgoing in decision.outgoing:
            if outgoing.instance not in waiting:
                self.children.pop(outgoing.instance, None)
        for answered in decision.letters_resolved:
            self.letters = {id: letter for id, letter in self.letters.items() if letter.step != answered.step}
        for letter in decision.letters:
            assert letter.id not in self.letters
            self.letters[letter.id] = letter
        for effect in decision.effects:
            if effect.awaited:
                self.effects[effect.id] = effect.token
        for task in decision.tasks:
            if isinstance(task, TaskOpened):
                self.tasks[task.id] = task.node
            elif isinstance(task, TaskRenamed):
                assert self.tasks[task.id] == task.was
                self.tasks[task.id] = task.now
            else:
                del self.tasks[task.id]
                assert task.status in ("completed", "cancelled", "expired")
                assert (task.decision is not None) == (task.status == "completed")

    # --- invariants -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        instance, state = self.instance, self.instance.state
        tokens = state.tokens
        standing = {t.step for t in tokens.values() if t.phase not in (Phase.HELD, Phase.DEAD)}
        planned = {undo.step for undo in state.rollback.plan or ()} if state.rollback else set[bytes]()
        open_rows = [row.id for row in self.table.open_rows if row.id in standing or row.id not in planned]
        assert sorted(open_rows) == sorted(standing), "each open row has one live token, each such token one open row"
        out = {
            path
            for path, t in tokens.items()
            if t.phase in (Phase.WORKING, Phase.CANCELLING) and all(wait.kind != "child" for wait in t.waits)
        } | state.ghosts.keys()
        assert set(self.work) == out, "each token at work has a work row, and nobody else"
        asked = {wait.ref for t in tokens.values() for wait in t.waits if wait.kind == "task"}
        assert set(self.tasks) == asked, "each open task has a token that waits for it, and the other way round"
        for scope in state.scopes:
            assert any(path.startswith(scope + ".") for path in tokens), "a scope nobody is left in"
        if instance.status in TERMINAL and state.rollback is None:
            assert not tokens
            assert not state.ghosts
            assert not open_rows
            assert state.expires is None
            assert state.early == 0
        elif not (state.rollback and (state.ghosts or instance.status is InstanceStatus.SUSPENDED)):
            assert tokens, "an instance that is not over has a live token"
        for path, token in tokens.items():
            self._check_can_move(path, token)
        rows, known = self.table.rows.values(), new_instance(self.program, self.input)
        for row in rows:
            if row.closed_version == instance.version and row.node in self.program.places:
                self._check_choice(row)
        rebuilt = replay(self.program, rows, instance=known, programs=self.earlier)
        assert projection(rebuilt) == projection(instance), "replay must equal the live instance"

    def _check_choice(self, row: StepRow) -> None:
        """Which way was taken is recorded, also where none was."""
        if self._node(row).traits.branches and row.status in ("completed", "failed"):
            assert row.chosen_edge_ids is not None, "a visit that is there to choose a way says which"

    def _check_can_move(self, path: str, token: Any) -> None:
        """Something can still move every token: nobody is lost."""
        status, state = self.instance.status, self.instance.state
        if token.phase is Phase.HELD:
            assert status is InstanceStatus.SUSPENDED
        if token.phase is Phase.DEAD:
            assert status in (InstanceStatus.SUSPENDED, InstanceStatus.DLQ)
        if token.phase is Phase.CANCELLING:
            assert state.stopping is not None or state.rollback is not None
        parked = {p.wait for p in state.parked}
        for wait in token.waits:
            if wait.kind in ("timer", "deadline", "retry"):
                assert wait.ref in self.timers or wait.id in parked, f"nobody will fire {wait.id}"
        kinds = {wait.kind for wait in token.waits}
        if token.phase is Phase.RETRYING:
            assert "retry" in kinds
        if token.phase is Phase.RESTING:
            events = set(self.program.places[token.node].ways) - {"completed", "error", "timeout"}
            assert kinds or events, "a resting token that nothing can reach"
        for wait in token.waits:
            assert wait.kind != "child" or wait.ref in self.children
            assert wait.kind != "receipt" or wait.ref in self.effects


def _moment(row: StepRow) -> tuple[int, int]:
    return row.opened_version, row.opened_ordinal


def _turn_back(rows: Sequence[StepRow]) -> tuple[int, bytes, bool] | None:
    """Since which version the instance goes backwards, which step made it, and whether past every save point."""
    postponed: dict[str, bytes] = {}
    for row in rows:
        detail, closing = (msgspec.json.decode(told or b"{}") for told in (row.detail, row.closing))
        if closing.get("fate") == "rollback":
            return row.closed_version or 0, row.id, False
        if closing.get("fate") == "postponed":
            postponed[row.path] = row.id
        if row.node == "@fate" and detail["fate"] == "rollback":
            return row.opened_version, postponed[detail["path"]], False
        if row.node == "@rollback":
            return row.opened_version, b"", detail["root"]
    return None


def _late(row: StepRow) -> dict[str, Any]:
    return msgspec.json.decode(row.detail or b"{}") if row.node == "@late" else {}


def _from_the_end(row: StepRow) -> list[tuple[int, ...]]:
    """Where a rollback meets the row, read off its path alone: `0/3.1` is branch 1 of the split at hop 3.

    On one path what came last comes first; at a split its branches come before it, in the order they were written.
    """
    branches = [(-int(hop), 0, int(index)) for hop, index in (part.split(".") for part in row.path.split("/")[1:])]
    return [*branches, (-row.hop, 1, -row.opened_version)]


ACTIONS = (
    *[World.finish_work] * 8,
    *[World.fire_timer] * 3,
    *[World.send_event] * 5,
    *[World.decide_task] * 3,
    *[World.finish_child] * 3,
    *[World.deliver_effect] * 3,
    World.lose_lease,
    *[World.repeat_something] * 3,
    World.control,
    World.expire_kept,
    *[World.resume] * 2,
    *[World.requeue] * 2,
)


def _inputs_to_come(decision: Decision) -> list[bytes | None]:
    """What is known of the inputs of compensations; plans that differ in it alone are equal."""
    rollback = decision.instance.state.rollback
    plan, inputs = None if rollback is None else rollback.plan, list[bytes | None]()
    while plan:
        inputs.append(plan.input)
        plan = plan.rest
    return inputs
