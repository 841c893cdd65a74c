"""A dead letter is answered: the step it is about runs again, as a new row beside the old one."""

from __future__ import annotations

from holdfast.core.decision import Answered
from holdfast.core.events import refuse_standstill
from holdfast.core.ids import token_id
from holdfast.core.rollback import open_compensation, run_next
from holdfast.core.signals import Requeue
from holdfast.core.state import Rollback, Token, Undo, value_of
from holdfast.core.status import TERMINAL, Phase
from holdfast.core.turn import NULL, Move, Turn
from holdfast.errors import Conflict


def requeue(turn: Turn, signal: Requeue) -> None:
    turn.letters_resolved = (Answered(signal.step, "replayed", turn.actor, signal.reason),)
    if signal.undo is not None:
        _compensate_again(turn, signal, signal.undo)
        return
    refuse_standstill(turn)
    path, token = _dead(turn, signal.step)
    raw = signal.raw if signal.raw is not None else value_of(token) or NULL
    run = token.run + 1
    is_new = signal.raw is not None
    turn.control("requeue", {"path": path, "by": turn.actor, "reason": signal.reason, "new": is_new}, raw)
    if is_new:
        turn.take_output(raw)  # where steps read the context, that is what they get to see of it
    detail = {"letter": signal.letter.hex(), "run": run, "new_input": is_new, "reason": signal.reason}
    turn.note("step_requeued", token.node, token_id(path, token.hop), detail)
    turn.superseded = [*turn.superseded, (token.step, token.at)]
    del turn.tokens[path]
    turn.moves.append(Move(path, token.hop, token.node, raw, 0, token.last, "requeued", run, token.fence))


def _dead(turn: Turn, step: bytes) -> tuple[str, Token]:
    for path, token in turn.tokens.items():
        if token.phase is Phase.DEAD and token.step == step:
            return path, token
    raise _stale()


def _compensate_again(turn: Turn, signal: Requeue, undo: Undo) -> None:
    """The instance stays what it is; only what could not be taken back is tried once more."""
    if turn.status not in TERMINAL or turn.rollback is not None:
        raise Conflict(
            "The instance is still going backwards.",
            code="INSTANCE_ROLLING_BACK",
            hint="Wait until the rollback has ended, then requeue what it left behind.",
        )
    place = turn.program.places.get(undo.node)
    if place is None:
        raise _stale()
    raw = signal.raw or NULL
    run = undo.run + 1
    turn.superseded = [*turn.superseded, (undo.step, undo.at)]
    token = token_id(undo.path, undo.hop)
    turn.control("undo_again", {"by": turn.actor, "reason": signal.reason, "target": turn.status}, raw)
    turn.note("compensation_requeued", undo.node, token, {"letter": signal.letter.hex(), "reason": signal.reason})
    again = open_compensation(
        turn, place, undo.path, undo.hop, undo.of, undo.of_at, undo.fence, 0, raw,
        run=run, is_evidence=undo.is_evidence,
    )  # fmt: skip
    turn.rollback = Rollback(turn.status, turn.reason, plan=(again,))
    run_next(turn, input=raw)


def _stale() -> Conflict:
    return Conflict(
        "What the dead letter is about has ended by other means.", code="DEAD_LETTER_STALE", hint="Discard it."
    )
