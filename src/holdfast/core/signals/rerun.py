"""Run a step again, inside an instance in which no handler runs.

The token goes back to the step as a loop would lead it there: on its own path, with a hop never used before, so that no
visit after it meets the receipt of an earlier one. The visits that followed the step end: tokens on the path and inside
it are skipped, with their timers, tasks and children. Completed steps stay completed, and their rows stay as they are;
a visit that had failed is superseded. A step that failed and still waits for a person is run again at the same hop,
which keeps the key its handler passes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.core.documents.gates import check_begun_again, check_input, check_repeat
from holdfast.core.kernel.builder import NULL, Move, Overflow, Turn, merged, within, without_own
from holdfast.core.kernel.scopes import OUT, cancel_token
from holdfast.core.model import control_rows
from holdfast.core.model.decision import Answered
from holdfast.core.model.ids import FORWARD, token_id
from holdfast.core.model.program import Program
from holdfast.core.model.renames import MIGRATE, names_today
from holdfast.core.model.rows import StepRow
from holdfast.core.model.signals import Rerun
from holdfast.core.model.state import ROOT, Instance, State, value_of
from holdfast.core.model.status import InstanceStatus, Phase, StepStatus
from holdfast.core.replay.replay import in_order, since_checkpoint, visited
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.graph.model import Behaviour
from holdfast.payloads.bounds import MAX_CONTEXT_BYTES

RERUN: Final = "rerun"  # the cause of the new visit, and the reason of tokens that end because of it
_REPLACEABLE: Final = frozenset({StepStatus.FAILED, StepStatus.PAUSED})
_TAKEN_BACK: Final = frozenset({StepStatus.COMPENSATION, StepStatus.ROLLED_BACK})
_UNFIT: Final = frozenset({Behaviour.JOIN, Behaviour.END})


def rerun(turn: Turn, signal: Rerun) -> None:
    _check_moment(turn)
    check_input(turn.program, turn.program.places[signal.node], signal.given)
    path, name = signal.path, token_id(signal.path, signal.hop)
    _check_scopes(turn.scopes.keys(), path, signal.node)
    is_merged = turn.program.merges and signal.given is not None
    row = control_rows.Rerun(
        path=path, hop=signal.hop, at=signal.node, run=signal.run, last=signal.last, of=signal.step.hex(),
        by=turn.actor, reason=signal.reason,
        merged=msgspec.Raw(signal.given) if is_merged and signal.given is not None else None,
    )  # fmt: skip
    turn.control(row, signal.raw)
    about = {"by": turn.actor, "reason": signal.reason, "new_input": signal.given is not None, "run": signal.run}
    turn.note("step_rerun", signal.node, name, about)
    if is_merged and signal.given is not None:
        turn.take_signed(signal.given)
    turn.chain = 0
    _end_what_followed(turn, signal)
    fence = signal.fence
    turn.moves.append(
        Move(
            path=path,
            hop=signal.hop,
            node=signal.node,
            raw=signal.raw,
            held=0,
            last=signal.last,
            cause=RERUN,
            run=signal.run,
            fence=fence,
        )
    )


def _check_moment(turn: Turn) -> None:
    if turn.program.rules.tells_facts:
        raise Conflict(
            "A machine that is not over moves by events only: its consumers are told of each.",
            code="TRIGGER_NEEDED",
            hint="Use engine.trigger; what is over begins again at a state as a new instance.",
        )
    if turn.rollback is not None or turn.status is InstanceStatus.ROLLING_BACK:
        raise Conflict(
            "The instance is going backwards.",
            code="INSTANCE_ROLLING_BACK",
            hint="Wait until it has ended, then run it again as a new instance.",
        )
    if turn.stopping is not None:
        raise Conflict("The instance is being cancelled.", code="INSTANCE_STOPPING", hint="Wait until it has ended.")
    out = sorted(token.node for token in (*turn.tokens.values(), *turn.ghosts.values()) if token.phase in OUT)
    if out:
        raise Conflict(
            f"Work is queued or running for {', '.join(map(repr, out))}.",
            code="RERUN_WORK_RUNNING",
            hint="Try again when it is done; a suspended instance stops before its next step.",
            nodes=out,
        )


def _check_scopes(scopes: Any, path: str, node: str) -> None:
    if any(scope not in scopes for scope in scopes_around(path)):
        raise Conflict(
            f"The branch {node!r} was in has been joined or left.",
            code="RERUN_SCOPE_CLOSED",
            hint="Choose the split, or a step before it.",
        )


def scopes_around(path: str) -> list[str]:
    found: list[str] = []
    while "/" in path:
        found.append(path.rpartition(".")[0])
        path = path.rpartition("/")[0]
    return found


def _end_what_followed(turn: Turn, signal: Rerun) -> None:
    path, inside = signal.path, signal.path + "/"
    for found in sorted(p for p in turn.tokens if p == path or p.startswith(inside)):
        token = turn.tokens[found]
        if token.phase is Phase.DEAD and token.step == signal.step:
            del turn.tokens[found]
            if turn.program.policy.on_error == "dlq":
                answer = Answered(token.step, "replayed", turn.actor, signal.reason)
                turn.letters_resolved = (*turn.letters_resolved, answer)
        else:
            cancel_token(turn, found, RERUN, StepStatus.SKIPPED)
    if signal.status in _REPLACEABLE:
        turn.superseded = [*turn.superseded, (signal.step, signal.at)]
    turn.parked = tuple(t for t in turn.parked if t.path != path and not t.path.startswith(inside))
    turn.scopes = {id: scope for id, scope in turn.scopes.items() if not id.startswith(inside)}
    scope_id, _, index = path.rpartition(".")
    scope = turn.scopes.get(scope_id)
    if scope is not None:
        done = {i: arrival for i, arrival in scope.done.items() if i != index}
        turn.scopes[scope_id] = msgspec.structs.replace(scope, done=done)


# --- which visit is meant -----------------------------------------------------------------------------------------


class Past(msgspec.Struct, frozen=True):
    """The past of an instance in which a step is to be run again: its rows and the graphs they were written under."""

    program: Program
    rows: Sequence[StepRow]
    identity: Instance
    earlier: Mapping[bytes, Program] = {}


def rerun_of(
    past: Past, state: State, version: int, node: str, token: str | None, given: bytes | None, reason: str | None
) -> Rerun:
    """The signal that runs a node again in an instance that is not over."""
    given = None if given is None else without_own(past.program.own, given)
    row = _chosen(past, node, token, state.scopes)
    standing = state.tokens.get(row.path)
    is_dead = standing is not None and standing.phase is Phase.DEAD and standing.step == row.id
    check_repeat(past.program, in_order(since_checkpoint(past.rows)), row, is_dead=is_dead)
    visit = visited(past.program, past.rows, row.id, instance=past.identity, programs=past.earlier)
    raw = given if given is not None and not past.program.merges else value_of(visit) or NULL
    return Rerun(
        node=node,
        path=row.path,
        hop=row.hop if is_dead else _fresh_hop(past, state, row.path),
        run=row.run + 1,
        raw=raw,
        step=row.id,
        at=row.created_at,
        status=row.status,
        last=visit.last,
        fence=_highest_fence(past, state, row.path),
        given=given,
        reason=reason,
        if_version=version,
    )


def begun_again(
    past: Past, data: bytes, node: str, token: str | None, given: bytes | None, most: int = MAX_CONTEXT_BYTES
) -> bytes:
    """The input of a new instance that begins at a node of one that is over."""
    check_begun_again(past.program)
    row = _chosen(past, node, token, None)
    if row.path != ROOT:
        raise _unfit(f"{node!r} ran in a branch; a new instance begins outside of all branches.")
    taken = [r.node for r in past.rows if r.kind == FORWARD and r.status in _TAKEN_BACK and _moment(r) < _moment(row)]
    if taken:
        raise Conflict(
            f"What came before {node!r} was taken back: {', '.join(sorted(set(taken)))}.",
            code="RERUN_TAKEN_BACK",
            hint="Begin at the first step that was taken back, or start a new instance.",
        )
    given = None if given is None else without_own(past.program.own, given)
    if past.program.merges:
        try:
            return data if given is None else within(merged(data, given), most)
        except Overflow as overflow:
            raise overflow.refusal() from None
    visit = visited(past.program, past.rows, row.id, instance=past.identity, programs=past.earlier)
    return given if given is not None else value_of(visit) or NULL


def _chosen(past: Past, node: str, token: str | None, open_scopes: Any) -> StepRow:
    """The last visit of the node; if several branches have visited it, that of the named token."""
    place = past.program.places.get(node)
    if place is None:
        raise NotFound(
            f"The flow {past.program.name!r} has no node {node!r}.",
            code="NODE_UNKNOWN",
            hint="Name a node of the version the instance runs on.",
        )
    if place.behaviour in _UNFIT or place.traits.undoes:
        raise _unfit(f"{node!r} is a {place.node.kind}, which is never run by itself.")
    today = names_today((_moment(r), r.detail) for r in past.rows if r.node == MIGRATE)
    visits = [r for r in past.rows if r.kind == FORWARD and today(r.node, _moment(r)) == node]
    if token is not None:
        visits = [r for r in visits if token_id(r.path, r.hop) == token]
    if not visits and any(row.node == control_rows.Checkpoint.node for row in past.rows):
        raise Conflict(
            f"The instance has not been at {node!r} since it was carried into a later month.",
            code="RERUN_HISTORY_GONE",
            hint="Choose a step it has been at since; start a new instance to begin earlier.",
        )
    if not visits:
        raise NotFound(
            f"The instance has not been at {node!r}" + (f" with the token {token}." if token else "."),
            code="RERUN_NEVER_REACHED",
            hint="Choose a step it has been at.",
        )
    latest = {row.path: row for row in sorted(visits, key=_moment)}
    if open_scopes is not None and len(latest) > 1:
        latest = {p: row for p, row in latest.items() if all(s in open_scopes for s in scopes_around(p))} or latest
    if len(latest) > 1 and (open_scopes is not None or ROOT not in latest):
        names = ", ".join(sorted(token_id(row.path, row.hop) for row in latest.values()))
        raise Conflict(
            f"Several branches have been at {node!r}: {names}.", code="RERUN_AMBIGUOUS", hint="Name the token."
        )
    return latest.get(ROOT) or next(iter(latest.values()))


def _unfit(sentence: str) -> HoldfastError:
    return Conflict(sentence, code="RERUN_NODE_UNFIT", hint="Choose a step outside, or the split itself.")


def _moment(row: StepRow) -> tuple[int, int]:
    return row.opened_version, row.opened_ordinal


def _fresh_hop(past: Past, state: State, path: str) -> int:
    hops = [row.hop for row in past.rows if row.path == path]
    hops += [scope.hop for scope in state.scopes.values() if scope.parent == path]
    token = state.tokens.get(path)
    return max([*hops, -1 if token is None else token.hop]) + 1


def _highest_fence(past: Past, state: State, path: str) -> int:
    fences = [row.fence for row in past.rows if row.path == path]
    fences += [scope.fence for scope in state.scopes.values() if scope.parent == path]
    token = state.tokens.get(path)
    return max([*fences, 0 if token is None else token.fence])
