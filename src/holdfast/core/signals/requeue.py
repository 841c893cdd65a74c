"""Requeue of dead letters: their steps run again, as new rows beside the old ones.

Several letters of one instance are one decision: all of their steps run again, or none does and the refusal names the
letters that prevent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from holdfast.core.documents.gates import check_input
from holdfast.core.kernel.builder import NULL, Move, Turn
from holdfast.core.model.control_rows import Requeued, UndoneAgain
from holdfast.core.model.decision import Answered
from holdfast.core.model.ids import token_id
from holdfast.core.model.signals import Requeue, RequeueMany
from holdfast.core.model.state import Rollback, Token, value_of
from holdfast.core.model.status import TERMINAL, Phase
from holdfast.core.rollback.pending import Undo, Undos, worth_keeping
from holdfast.core.rollback.rollback import open_compensation, run_next
from holdfast.core.signals.events import refuse_standstill
from holdfast.errors import Conflict


def requeue(turn: Turn, signal: Requeue) -> None:
    _requeue(turn, (signal,))


def requeue_many(turn: Turn, signal: RequeueMany) -> None:
    _requeue(turn, signal.parts)


def _requeue(turn: Turn, parts: Sequence[Requeue]) -> None:
    undos = [(part, part.undo) for part in parts if part.undo is not None]
    if undos:
        _compensate_again(turn, undos)
    else:
        _run_again(turn, parts)
    turn.letters_resolved = tuple(Answered(part.step, "replayed", turn.actor, part.reason) for part in parts)


def _run_again(turn: Turn, parts: Sequence[Requeue]) -> None:
    refuse_standstill(turn)
    dead = {token.step: (path, token) for path, token in turn.tokens.items() if token.phase is Phase.DEAD}
    _refuse_stale([part for part in parts if part.step not in dead])
    for part in parts:
        _set_out_again(turn, part, *dead[part.step])
    turn.moves.reverse()  # the walk takes the last one first


def _set_out_again(turn: Turn, part: Requeue, path: str, token: Token) -> None:
    check_input(turn.program, turn.program.places[token.node], part.raw)
    run = token.run + 1
    is_new = part.raw is not None
    # Where steps read the context, a new input merges into it: else they would not see it.
    raw = turn.take_output(part.raw) if part.raw is not None else value_of(token) or NULL
    turn.control(Requeued(path=path, by=turn.actor, reason=part.reason, new=is_new), raw)
    detail = {"letter": part.letter.hex(), "run": run, "new_input": is_new, "reason": part.reason}
    turn.note("step_requeued", token.node, token_id(path, token.hop), detail)
    turn.superseded = [*turn.superseded, (token.step, token.at)]
    del turn.tokens[path]
    turn.moves.append(
        Move(
            path=path,
            hop=token.hop,
            node=token.node,
            raw=raw,
            held=0,
            last=token.last,
            cause="requeued",
            run=run,
            fence=token.fence,
        )
    )


def _compensate_again(turn: Turn, undos: Sequence[tuple[Requeue, Undo]]) -> None:
    """Run failed compensations again, one after another, while the instance keeps its final status."""
    if turn.status not in TERMINAL or turn.rollback is not None:
        raise Conflict(
            "The instance is still going backwards.",
            code="INSTANCE_ROLLING_BACK",
            hint="Wait until the rollback has ended, then requeue what it left behind.",
        )
    places = turn.program.places
    _refuse_stale([part for part, undo in undos if undo.node not in places])
    for part, _ in undos:  # before the first row: from there on a rebuild counts the compensations left
        turn.control(UndoneAgain(by=turn.actor, reason=part.reason, target=turn.status), part.raw or NULL)
    plan: list[Undo] = []
    for part, undo in undos:
        turn.superseded = [*turn.superseded, (undo.step, undo.at)]
        detail = {"letter": part.letter.hex(), "reason": part.reason}
        turn.note("compensation_requeued", undo.node, token_id(undo.path, undo.hop), detail)
        plan.append(
            open_compensation(
                turn=turn,
                place=places[undo.node],
                path=undo.path,
                hop=undo.hop,
                of=undo.of,
                of_at=undo.of_at,
                fence=undo.fence,
                ordinal=len(plan),
                raw=part.raw or NULL,
                run=undo.run + 1,
                is_evidence=undo.is_evidence,
            )
        )
    inputs = worth_keeping([part.raw or NULL for part, _ in undos])
    turn.rollback = Rollback(turn.status, turn.reason, plan=Undos(plan, inputs))
    run_next(turn)


def _refuse_stale(parts: Sequence[Requeue]) -> None:
    if parts:
        raise stale_letters(part.letter for part in parts)


def stale_letters(letters: Iterable[bytes]) -> Conflict:
    return Conflict(
        "What the dead letter is about has ended by other means.",
        code="DEAD_LETTER_STALE",
        hint="Discard it.",
        letters=[str(UUID(bytes=letter)) for letter in letters],
    )
