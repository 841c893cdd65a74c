"""Interrupts: every token ends, and the root token continues elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.core.documents.regions import Stay
from holdfast.core.kernel.builder import Move, Turn
from holdfast.core.kernel.routing import Records
from holdfast.core.kernel.scopes import after_root, cancel_all
from holdfast.core.model.control_rows import Interrupted
from holdfast.core.model.state import ROOT

INTERRUPTED: Final = "interrupted"  # why the tokens end
INTERRUPT: Final = "interrupt"  # the cause of the move that follows


def interrupt(
    turn: Turn,
    found: Sequence[Stay],
    target: str,
    raw: bytes,
    *,
    verb: str | None = None,
    merged: bool = False,
    records: Records | None = None,
) -> None:
    """End all tokens with their rows. Handlers that run are asked to stop; their late results count for nothing."""
    hop, fence = after_root(turn)
    regions = tuple(dict.fromkeys(stay.area.id for stay in found))
    row = Interrupted(verb=verb, regions=regions, goes_to=target, hop=hop, merged=merged, evaluated=records)
    turn.control(row, raw)
    turn.note("instance_interrupted", target, detail={"verb": verb, "regions": regions})
    turn.chain = 0
    cancel_all(turn, INTERRUPTED)
    turn.scopes = {}
    turn.parked = tuple(timer for timer in turn.parked if not timer.path)  # that of the instance itself stays
    turn.moves.append(Move(ROOT, hop, target, raw, cause=INTERRUPT, fence=fence))
