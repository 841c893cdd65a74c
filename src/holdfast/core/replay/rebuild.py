"""An instance in the making, from its rows: the mutable half of replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.core.kernel.builder import NULL, Move, decode, merged
from holdfast.core.kernel.enter import AUTOMATIC
from holdfast.core.kernel.failure import DEAD, LOST, POSTPONED, ROLLBACK, with_error
from holdfast.core.model.ids import COMPENSATE, CONTROL, timer_id
from holdfast.core.model.program import Place, Program
from holdfast.core.model.rows import CARRIED, StepRow, phase_of_work, read_error
from holdfast.core.model.state import (
    Arrival,
    Failed,
    Instance,
    Parked,
    Rollback,
    Scope,
    State,
    Stopping,
    Token,
    Value,
    Wait,
    value_of,
)
from holdfast.core.model.status import FAILURES, TERMINAL, InstanceStatus, Phase, StepStatus
from holdfast.core.model.timestamps import seconds
from holdfast.core.replay.undo import Undoing
from holdfast.core.rollback.rollback import AFTER_STOP
from holdfast.core.signals.decisions import REJECTED
from holdfast.core.signals.early import ENGINE_EVENTS
from holdfast.core.signals.timers import EXPIRY
from holdfast.graph.model import Behaviour

_NOT_FOLLOWED: Final = frozenset({StepStatus.CANCELLED, StepStatus.SKIPPED})


class _Detail(msgspec.Struct):
    waits: tuple[Wait, ...] = ()
    children: tuple[str, ...] = ()
    start: Value = msgspec.UNSET


class _Closing(msgspec.Struct):
    fate: str | None = None
    kept: str | None = None
    decision: str | None = None
    ghost: bool = False
    shrugged: bool = False


_detail = msgspec.json.Decoder(_Detail).decode
_closing = msgspec.json.Decoder(_Closing).decode
_edge_ids = msgspec.json.Decoder(list[str]).decode


class Rebuild:
    def __init__(self, program: Program, identity: Instance, programs: Mapping[bytes, Program] | None = None) -> None:
        self.identity = identity
        self.programs = programs or {}
        self.follow(program)
        self.version = 0
        self.entity_version = identity.entity_version
        self.status = InstanceStatus.PENDING
        self.reason: str | None = None
        self.context = b"{}"
        self.result: bytes | None = None
        self.tokens: dict[str, Token] = {}
        self.scopes: dict[str, Scope] = {}
        self.moves: dict[str, Move] = {}  # tokens in transit, by path
        self.chain = 0
        self.early = 0
        self.parked: tuple[Parked, ...] = ()
        self.stopping: Stopping | None = None
        self.expires: Wait | None = None
        self.ghosts: dict[str, Token] = {}
        self.undoing = Undoing()

    def follow(self, program: Program) -> None:
        """Read the rows from here on with the graph they were written under."""
        self.program = program
        self.targets = {w.id: w.target for p in program.places.values() for ways in p.ways.values() for w in ways}

    # --- a row opens ----------------------------------------------------------------------------------------------

    def open(self, row: StepRow) -> None:
        if row.cause == CARRIED:  # the token is on this step already
            return
        self.entity_version = row.entity_version
        if row.kind == COMPENSATE:
            self.undoing.open(row)
            return
        detail = _detail(row.detail or b"{}")
        move = self._arriving(row, detail)
        place = self.program.places[row.node]
        if self.program.policy.chain_limit is not None and place.behaviour in AUTOMATIC:
            self.chain += 1
        phase, waits = self._phase(row, place, detail.waits)
        value = msgspec.Raw(move.raw)
        self.tokens[row.path] = Token(
            hop=row.hop,
            node=row.node,
            step=row.id,
            at=row.created_at,
            fence=row.fence,
            phase=phase,
            calls=row.calls,
            run=row.run,
            last=move.last,
            waits=waits,
            value=value,
            entity_version=self.version_seen(place),
        )

    def version_seen(self, place: Place) -> int:
        return 0 if place.area is None else self.entity_version

    def _arriving(self, row: StepRow, detail: _Detail) -> Move:
        """The token that enters the row's node, taken out of transit."""
        if row.cause == "started":
            return self._start(row, detail)
        if row.behaviour == Behaviour.JOIN:
            self.close_scope(f"{row.path}/{row.hop - 1}")
            return self.moves.pop(row.path, None) or Move(row.path, row.hop, row.node, row.input or NULL)
        return self.moves.pop(row.path)

    def _start(self, row: StepRow, detail: _Detail) -> Move:
        raw = row.input or NULL if isinstance(detail.start, msgspec.UnsetType) else bytes(detail.start)
        self.status = InstanceStatus.RUNNING
        if isinstance(decode(raw), dict):
            self.context = raw
        timeout = self.program.policy.timeout
        if timeout is not None:
            ref = timer_id(self.identity.id, EXPIRY)
            self.expires = Wait(EXPIRY, EXPIRY, due=row.created_at + seconds(timeout), ref=ref)
        return Move(row.path, row.hop, row.node, raw)

    @staticmethod
    def _phase(row: StepRow, place: Place, waits: tuple[Wait, ...]) -> tuple[Phase, tuple[Wait, ...]]:
        if place.behaviour not in (Behaviour.WORK, Behaviour.CALL):
            return Phase.RESTING, waits
        return phase_of_work(row, waits)

    # --- a row closes ---------------------------------------------------------------------------------------------

    def close(self, row: StepRow) -> None:
        if row.kind == COMPENSATE:
            self.undoing.close(row)
            return
        if row.outcome == CARRIED:  # the token stays where it is: another row tells how the step ends
            return
        token = self.tokens.get(row.path)
        if row.kind == CONTROL or token is None or token.step != row.id:
            return
        del self.tokens[row.path]
        closing = _closing(row.closing or b"{}")
        if closing.ghost:
            self.ghosts[row.path] = token
        was_dropped = row.status in _NOT_FOLLOWED and closing.fate is None  # the dead are skipped only later
        if was_dropped or row.outcome == AFTER_STOP:
            return
        place = self.program.places[token.node]
        if closing.kept is not None:
            self.early -= 1
        if closing.decision is not None or self._was_outside_signal(row, place):
            self.chain = 0
        if self.program.merges and row.output is not None and self._gives_output(row, place):
            self.context = merged(self.context, row.output)
        if self.program.policy.keeps_error and (closing.shrugged or row.outcome in FAILURES):
            error = read_error(row.error)
            self.context = with_error(self.context, error.code, error.message, place.id)
        self._go_on(row, token, place, closing.fate)

    @staticmethod
    def _was_outside_signal(row: StepRow, place: Place) -> bool:
        """Check if an event or a moment ended the step, so that a new chain begins."""
        if row.is_at_once:
            return False
        return place.behaviour is Behaviour.TIMER or row.outcome == "timeout" or row.outcome not in ENGINE_EVENTS

    @staticmethod
    def _gives_output(row: StepRow, place: Place) -> bool:
        return not row.is_at_once or (place.behaviour is Behaviour.PASS and place.mapping is not None)

    def _go_on(self, row: StepRow, token: Token, place: Place, fate: str | None) -> None:
        failed = row.outcome in FAILURES  # its status may have moved on since: it was taken back, or run again
        value = value_of(token) or row.input or NULL
        raw = value if failed or row.output is None else row.output
        chosen = _edge_ids(row.chosen_edge_ids or b"[]")
        if place.is_split and not failed:
            self._part(row, raw, chosen)
        elif chosen:
            passes = place.behaviour is Behaviour.PASS and place.mapping is None and not failed
            last = (token.last or place.id) if passes else place.id
            self.moves[row.path] = Move(row.path, row.hop + 1, self.targets[chosen[0]], raw, last=last)
        elif failed:
            self._fail(row, token, fate)
        elif row.status is StepStatus.REJECTED:
            self.end(InstanceStatus.ABORTED, REJECTED)
        else:
            self.result = raw
            self.branch_over(row.path, "ended")

    def _part(self, row: StepRow, raw: bytes, chosen: list[str]) -> None:
        children = _detail(row.detail or b"{}").children
        self.scopes[f"{row.path}/{row.hop}"] = Scope(row.node, row.path, row.hop, len(children))
        for path, edge in zip(children, chosen, strict=True):
            self.moves[path] = Move(path, 0, self.targets[edge], raw)

    def _fail(self, row: StepRow, token: Token, fate: str | None) -> None:
        if fate not in (DEAD, POSTPONED):
            self.meet_fate(row.path, fate, read_error(row.error).code, row.id)
            return
        failed = Failed(msgspec.Raw(row.error or NULL), self.version, fate == POSTPONED)
        self.tokens[row.path] = msgspec.structs.replace(token, phase=Phase.DEAD, waits=(), failed=failed)

    def meet_fate(self, path: str, fate: str | None, code: str, step: bytes) -> None:
        if fate == LOST:
            self.branch_over(path, "failed")
        elif fate == ROLLBACK:
            self.turn_back(Rollback(InstanceStatus.FAILED, code, first=step))
        else:
            self.end(InstanceStatus.FAILED, code)

    def turn_back(self, rollback: Rollback) -> None:
        self.undoing.begin(rollback)
        self.status, self.reason, self.expires = InstanceStatus.ROLLING_BACK, rollback.reason, None
        self.stop_all()

    def stop_all(self) -> None:
        """Keep the tokens of running handlers and sub-flows, as cancelling; later rows close all other steps."""
        self.parked, self.scopes, self.moves = (), {}, {}
        self.tokens = {path: out for path, token in self.tokens.items() if (out := _still_out(token)) is not None}

    # --- scopes ---------------------------------------------------------------------------------------------------

    def branch_over(self, path: str, outcome: str) -> None:
        """Record the end of a branch. The scope closes here if all branches ended; else by the row of its join."""
        scope_id, _, index = path.rpartition(".")
        if not scope_id:
            return
        scope = self.scopes[scope_id]
        scope = msgspec.structs.replace(scope, done={**scope.done, index: Arrival(outcome=outcome)})
        self.scopes[scope_id] = scope
        if len(scope.done) == scope.width and all(a.outcome == "ended" for a in scope.done.values()):
            self.close_scope(scope_id)
            self.branch_over(scope.parent, "ended")

    def close_scope(self, scope_id: str) -> None:
        inside = scope_id + "."
        self.tokens = {p: t for p, t in self.tokens.items() if not p.startswith(inside)}
        self.moves = {p: m for p, m in self.moves.items() if not p.startswith(inside)}
        self.scopes = {s: v for s, v in self.scopes.items() if s != scope_id and not s.startswith(inside)}

    # --- the end of a version, and of the instance ----------------------------------------------------------------

    def end_version(self) -> None:
        for path, move in self.moves.items():
            scope_id, _, index = path.rpartition(".")
            scope = self.scopes[scope_id]
            arrival = Arrival(move.last, msgspec.Raw(move.raw))
            self.scopes[scope_id] = msgspec.structs.replace(scope, done={**scope.done, index: arrival})
        self.moves = {}
        if self.undoing.is_under_way:
            self._go_back()
        elif not self.tokens and not self.scopes:
            self._complete()
        elif self.status is InstanceStatus.DLQ and all(t.phase is not Phase.DEAD for t in self.tokens.values()):
            self.status, self.reason = InstanceStatus.RUNNING, None
        self.result = None

    def _go_back(self) -> None:
        """End the instance if no compensation is left to run; it may have ended before."""
        rollback = self.undoing.over()
        if rollback is None or self.tokens:
            return
        if self.status not in TERMINAL:
            self.status = InstanceStatus.FAILED if rollback.broken else rollback.target
            self.reason = rollback.reason
        self._complete()

    def _complete(self) -> None:
        if self.status not in TERMINAL:
            if self.stopping is not None:
                self.status, self.reason = InstanceStatus.CANCELLED, self.stopping.reason
            else:
                self.status, self.reason = InstanceStatus.COMPLETED, None
                if self.result is not None and not self.program.merges:
                    self.context = self.result
        self.stopping, self.expires, self.parked, self.chain, self.early = None, None, (), 0, 0
        self.ghosts = {}

    def end(self, status: InstanceStatus, reason: str | None) -> None:
        self.status, self.reason = status, reason
        self.tokens, self.scopes, self.moves = {}, {}, {}
        self.undoing = Undoing()

    def instance(self) -> Instance:
        lent = self.identity
        tokens = {path: self._as_kept(token) for path, token in self.tokens.items()}
        tokens |= self.undoing.tokens()
        state = State(
            tokens=tokens,
            scopes=self.scopes,
            chain=self.chain,
            early=self.early,
            parked=self.parked,
            stopping=self.stopping,
            expires=self.expires,
            rollback=self.undoing.state(),
            ghosts=self.ghosts,
        )
        return Instance(
            id=lent.id,
            org=lent.org,
            definition=lent.definition,
            flow=lent.flow,
            flow_version=lent.flow_version,
            version=self.version,
            status=self.status,
            state=state,
            data=self.context,
            reason=self.reason,
            entity_version=self.entity_version,
            parent=lent.parent,
            parent_token=lent.parent_token,
            trace=lent.trace,
            starter=lent.starter,
            partition=lent.partition,
            correlation=lent.correlation,
        )

    def _as_kept(self, token: Token) -> Token:
        """Drop a value that the step row has, as a live snapshot does."""
        if token.phase in (Phase.HELD, Phase.DEAD) or self.program.places[token.node].keeps_value:
            return token
        return msgspec.structs.replace(token, value=msgspec.UNSET)


def _still_out(token: Token) -> Token | None:
    if token.phase in (Phase.WORKING, Phase.EXPIRING):
        return msgspec.structs.replace(token, phase=Phase.CANCELLING, failed=None)
    children = tuple(wait for wait in token.waits if wait.kind == "child")
    if token.phase is Phase.RESTING and children:
        return msgspec.structs.replace(token, phase=Phase.CANCELLING, waits=children)
    return None
