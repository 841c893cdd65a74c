"""The rollback of an instance that is being rebuilt from its rows: the part of replay that goes backwards."""

from __future__ import annotations

import msgspec

from holdfast.core.model.rows import StepRow, phase_of_work
from holdfast.core.model.state import Rollback, Token
from holdfast.core.model.status import StepStatus
from holdfast.core.rollback.pending import Undo, Undos, undo_of


class Undoing:
    """The rollback in a rebuild. Each compensation has a row from the plan on; the first one not closed is present."""

    def __init__(self) -> None:
        self.rollback: Rollback | None = None
        self.is_planned = False
        self._rows: dict[bytes, StepRow] = {}
        self._fences: dict[str, int] = {}  # the last one of each path

    @property
    def is_under_way(self) -> bool:
        return self.rollback is not None

    def begin(self, rollback: Rollback) -> None:
        self.rollback, self.is_planned, self._rows, self._fences = rollback, False, {}, {}

    def open(self, row: StepRow) -> None:
        self._rows[row.id] = row
        self._fences[row.path] = max(row.fence, self._fences.get(row.path, 0))
        self.is_planned = True

    def close(self, row: StepRow) -> None:
        self._rows.pop(row.id, None)
        if self.rollback is not None and row.outcome == "error":
            self.rollback = msgspec.structs.replace(self.rollback, broken=True)

    def over(self) -> Rollback | None:
        """The rollback, once it has nothing left to do."""
        if not self.is_planned or self._rows:
            return None
        rollback, self.rollback = self.rollback, None
        return rollback

    def state(self) -> Rollback | None:
        if self.rollback is None or not self.is_planned:
            return self.rollback
        plan = Undos(_undo(row, self._fences[row.path]) for row in self._rows.values())
        return msgspec.structs.replace(self.rollback, plan=plan, first=b"")

    def tokens(self) -> dict[str, Token]:
        row = next(iter(self._rows.values()), None)
        if row is None or row.status is StepStatus.PENDING:
            return {}
        phase, waits = phase_of_work(row, ())
        return {
            row.path: Token(
                hop=row.hop,
                node=row.node,
                step=row.id,
                at=row.created_at,
                fence=row.fence,
                phase=phase,
                calls=row.calls,
                run=row.run,
                last=None,
                waits=waits,
            )
        }


def _undo(row: StepRow, fence: int) -> Undo:
    return undo_of(row.node, row.path, row.hop, row.id, row.created_at, fence, row.run, row.detail or b"{}")
