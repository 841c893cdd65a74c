"""One instance, driven by hand. Every decision is computed twice, applied, and replayed from the rows."""

from __future__ import annotations

from typing import Any

import msgspec
from core_table import StepTable

from holdfast.core.decide import decide
from holdfast.core.model.decision import Call, Decision, Dispatch, Facts, History, LastCall
from holdfast.core.model.program import Program
from holdfast.core.model.rows import StepRow
from holdfast.core.model.signals import (
    SYSTEM,
    Actor,
    CallDue,
    CallsSpent,
    ChildFinished,
    EventArrived,
    Failure,
    HistoryRead,
    ReceiptArrived,
    Signal,
    Started,
    TimerDue,
    WorkDone,
    WorkFailed,
)
from holdfast.core.model.state import (
    EMPTY,
    Instance,
    Token,
    encode_state,
    rollback_view,
    scope_view,
    token_view,
    value_of,
)
from holdfast.core.model.status import INSTANCE_TRANSITIONS, InstanceStatus
from holdfast.core.replay.replay import replay

SECOND = 1_000_000
ID = bytes(range(15)) + b"\x07"
BOOM = Failure("BOOM", "It went wrong.")


def new_instance(program: Program, input: Any = None, **options: Any) -> Instance:
    raw = msgspec.json.encode({} if input is None else input)
    data = raw if raw[:1] == b"{" else b"{}"
    status, fields = InstanceStatus.PENDING, {"id": ID, **options}
    return Instance(
        org="acme", definition=b"", flow=program.name, flow_version=1, version=0, status=status, state=EMPTY, data=data,
        **fields,
    )  # fmt: skip


def projection(instance: Instance) -> Any:
    """What replay must reproduce."""
    state = instance.state
    values = {p: msgspec.json.decode(value_of(t) or b"null") for p, t in state.tokens.items()}
    return (
        instance.status, instance.reason, msgspec.json.decode(instance.data), instance.entity_version,
        token_view(state), values, scope_view(state), state.chain, state.early, state.parked, state.stopping,
        state.expires, rollback_view(state),
    )  # fmt: skip


class Run:
    def __init__(self, program: Program, **options: Any) -> None:
        self.program = program
        self.earlier: dict[bytes, Program] = {}  # graphs it was migrated from
        self.options = options
        self.instance = new_instance(program, **options)
        self.table = StepTable()
        self.now = 800_000_000 * SECOND
        self.last: Decision | None = None
        self.dispatched: dict[str, Dispatch] = {}
        self.events = 0

    # --- driving ----------------------------------------------------------------------------------------------------

    def apply(self, signal: Signal, actor: Actor = SYSTEM, **facts: Any) -> Decision:
        before = encode_state(self.instance.state)
        known = Facts(self.now, actor, **facts)
        decision = decide(self.program, self.instance, signal, known)
        assert decision == decide(self.program, self.instance, signal, known), "the same in, the same out"
        assert encode_state(self.instance.state) == before, "decide changes nothing in place"
        self._commit(decision)
        return decision

    def _commit(self, decision: Decision) -> None:
        if any(isinstance(need, Call) for need in decision.needs):
            self.last = decision
            return
        before, after = self.instance.status, decision.instance.status
        assert before == after or after in INSTANCE_TRANSITIONS[before], f"{before} may not become {after}"
        self.table.apply(decision, self.now)
        self.instance = self.table.stored(decision.instance)
        self.last = decision
        for released in decision.released:
            self.dispatched.pop(released.path, None)
        for dispatch in decision.dispatches:
            self.dispatched[dispatch.path] = dispatch
        rebuilt = replay(
            self.program,
            self.table.rows.values(),
            instance=new_instance(self.program, **self.options),
            programs=self.earlier,
        )
        assert projection(rebuilt) == projection(self.instance), "replay must equal the live instance"
        if any(isinstance(need, History) for need in decision.needs):
            self.asked = decision
            self.apply(HistoryRead(self.table.history()))
        for need in decision.needs:
            if isinstance(need, LastCall):
                row = self.table.rows[need.step]
                failure = msgspec.json.decode(row.error or b"", type=Failure)
                self.apply(CallsSpent(need.path, need.step, failure, row.input))

    def start(self, input: Any = None) -> Run:
        value = {} if input is None else input
        self.options = {**self.options, "input": value}
        self.instance = new_instance(self.program, **self.options)
        self.apply(Started(msgspec.json.encode(value)))
        return self

    def done(self, node: str, output: Any = None, **facts: Any) -> Run:
        path, token = self.at(node)
        raw = msgspec.json.encode({} if output is None else output)
        input = self.table.rows[token.step].input
        self.apply(WorkDone(path, token.step, token.fence, raw, token.calls, input), **facts)
        return self

    def fail(self, node: str, failure: Failure = BOOM, *, retryable: bool = True, calls: int | None = None) -> Run:
        path, token = self.at(node)
        input = self.table.rows[token.step].input
        self.apply(WorkFailed(path, token.step, token.fence, failure, calls or token.calls, retryable, input))
        return self

    def run_call(self, node: str, output: Any, **facts: Any) -> Decision:
        """A call's transaction: decide, answer what it needs, decide again."""
        path, token = self.at(node)
        signal = CallDue(path, token.step, token.fence, token.calls, self.table.rows[token.step].input or b"null")
        answers: dict[bytes, bytes] = {}
        for _ in range(5):
            decision = self.apply(signal, inline_calls=True, answers=answers, **facts)
            calls = [need for need in decision.needs if isinstance(need, Call)]
            if not calls:
                return decision
            answers = {**answers, **{need.step: msgspec.json.encode(output) for need in calls}}
        raise AssertionError("the call's transaction does not come to an end")

    def fire(self, node: str, kind: str) -> Run:
        path, token = self.at(node)
        wait = next(wait for wait in token.waits if wait.kind == kind)
        self.now = max(self.now, wait.due or 0)
        self.apply(TimerDue(path, wait.id, kind))
        return self

    def expire(self, **facts: Any) -> Run:
        assert self.instance.state.expires is not None
        self.now = max(self.now, self.instance.state.expires.due or 0)
        self.apply(TimerDue("", self.instance.state.expires.id, "expiry"), **facts)
        return self

    def event(self, name: str, payload: Any = None, actor: Actor = SYSTEM, **options: Any) -> Run:
        self.events += 1
        raw = None if payload is None else msgspec.json.encode(payload)
        self.apply(EventArrived(b"%016d" % self.events, name, raw, **options), actor)
        return self

    def child_finished(self, node: str, status: str = "completed", output: Any = None, **options: Any) -> Run:
        path, token = self.at(node)
        self.apply(ChildFinished(f"{path}@{token.hop}", status, msgspec.json.encode(output), **options))
        return self

    def receipt(self, node: str, output: Any = None, failure: Failure | None = None) -> Run:
        path, token = self.at(node)
        raw = None if output is None else msgspec.json.encode(output)
        self.apply(ReceiptArrived(f"{path}@{token.hop}", raw, failure))
        return self

    # --- looking ----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        return str(self.instance.status)

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.instance.data)

    @property
    def tokens(self) -> dict[str, Token]:
        return self.instance.state.tokens

    @property
    def nodes(self) -> list[str]:
        """Where the live tokens are."""
        return sorted(token.node for token in self.tokens.values())

    def at(self, node: str) -> tuple[str, Token]:
        found = [(path, token) for path, token in self.tokens.items() if token.node == node]
        assert len(found) == 1, f"{len(found)} tokens at {node!r}: {self.nodes}"
        return found[0]

    def rows(self, node: str) -> list[StepRow]:
        return sorted((r for r in self.table.rows.values() if r.node == node), key=lambda r: (r.opened_version, r.run))

    def row(self, node: str) -> StepRow:
        [row] = self.rows(node)
        return row

    def input(self, node: str) -> Any:
        return msgspec.json.decode(self.rows(node)[-1].input or b"null")

    def chosen(self, node: str) -> list[str]:
        return msgspec.json.decode(self.rows(node)[-1].chosen_edge_ids or b"[]")

    def statuses(self) -> dict[str, str]:
        return {row.node: str(row.status) for row in self.table.rows.values() if row.kind == "forward"}
