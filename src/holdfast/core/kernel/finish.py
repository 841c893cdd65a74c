"""The end of a turn: the new state of the instance, and the signal to its parent if it is over."""

from __future__ import annotations

import msgspec

from holdfast.core.kernel.builder import Turn, encode
from holdfast.core.kernel.scopes import release_ghosts
from holdfast.core.model.decision import Decision, Outgoing
from holdfast.core.model.ids import derived_id
from holdfast.core.model.state import Instance, State
from holdfast.core.model.status import SUSPENDED, TERMINAL, InstanceStatus, Phase
from holdfast.core.people.tasks import settle_tasks
from holdfast.core.rollback.rollback import settle_rollback


def finish(turn: Turn) -> Decision:
    _settle(turn)
    if turn.tasks:
        settle_tasks(turn)
    before = turn.instance
    after = Instance(
        before.id,
        before.org,
        before.definition,
        before.flow,
        before.flow_version,
        turn.version,
        turn.status,
        State(
            tokens=turn.tokens,
            scopes=turn.scopes,
            chain=turn.chain,
            early=turn.early,
            parked=turn.parked,
            stopping=turn.stopping,
            expires=turn.expires,
            rollback=turn.rollback,
            ghosts=turn.ghosts,
        ),
        turn.context,
        turn.reason,
        before.entity_version,
        before.parent,
        before.parent_token,
        before.trace,
        before.created or turn.now,
        before.starter,
        before.partition,
        before.correlation,
        turn.now,
    )
    return Decision(
        after,
        turn.opened,
        turn.closed,
        turn.events,
        turn.dispatches,
        turn.released,
        turn.retried,
        turn.timers,
        turn.timers_ended,
        turn.effects,
        turn.key_waits,
        turn.key_waits_ended,
        turn.children,
        turn.outgoing,
        turn.superseded,
        turn.keep,
        turn.needs,
        turn.error,
        turn.tasks,
        "",
        turn.stops,
        turn.halts,
        turn.moved,
        turn.letters,
        turn.letters_resolved,
        *_pauses(turn),
        tuple(turn.facts_told),
        tuple(turn.notices),
        turn.rearms,
        turn.answer,
    )


def _pauses(turn: Turn) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Paths whose work pauses in a suspended instance, and paths whose work begins again with their queues."""
    was, now = turn.instance.status is SUSPENDED, turn.status is SUSPENDED
    if not (was or now):
        return (), ()
    if now:
        fresh = {dispatch.path for dispatch in turn.dispatches}
        return tuple(path for path in _at_work(turn) if not was or path in fresh), ()
    known = turn.instance.state.tokens
    back = [path for path in _at_work(turn) if path in known and known[path].step == turn.tokens[path].step]
    return (), tuple((path, turn.program.places[turn.tokens[path].node].queue) for path in back)


def _at_work(turn: Turn) -> list[str]:
    return sorted(path for path, token in turn.tokens.items() if token.phase is Phase.WORKING)


def _settle(turn: Turn) -> None:
    """End the instance when no live token is left, and report the end to a parent that waits."""
    if turn.rollback is not None:
        if not settle_rollback(turn, turn.rollback):
            return
    elif turn.tokens or turn.scopes:
        if turn.status is InstanceStatus.DLQ and all(t.phase is not Phase.DEAD for t in turn.tokens.values()):
            turn.status, turn.reason = InstanceStatus.RUNNING, None
        return
    if turn.status not in TERMINAL:
        if turn.stopping is not None:
            turn.status, turn.reason = InstanceStatus.CANCELLED, turn.stopping.reason
            turn.note("instance_cancelled", detail={"by": turn.stopping.by, "reason": turn.stopping.reason})
        else:
            turn.status, turn.reason = InstanceStatus.COMPLETED, None
            if turn.result is not None and not turn.program.merges:
                turn.context = turn.result
            turn.note("instance_completed")
    if turn.ghosts:
        release_ghosts(turn)
    if turn.expires is not None and turn.expires.ref is not None:
        turn.timers_ended = [*turn.timers_ended, turn.expires.ref]
    turn.stopping, turn.expires, turn.parked, turn.chain, turn.early = None, None, (), 0, 0
    if turn.instance.parent is not None:
        _tell_parent(turn, turn.instance.parent)


def _tell_parent(turn: Turn, parent: bytes) -> None:
    before = turn.instance
    payload = {
        "token": before.parent_token,
        "child": before.id.hex(),
        "status": turn.status,
        "output": msgspec.Raw(turn.context),
        "error": None if turn.error is None else msgspec.Raw(turn.error),
    }
    signal = derived_id(parent[15], parent, before.id, b"finished")
    turn.outgoing = [*turn.outgoing, Outgoing(parent, signal, "child_finished", encode(payload))]
