"""The steps table in memory: applies decisions as the store does and refuses what its constraints would refuse."""

from __future__ import annotations

import msgspec

from holdfast.core.model.control_rows import Checkpoint
from holdfast.core.model.decision import Decision, Opened
from holdfast.core.model.ids import CONTROL
from holdfast.core.model.rows import CARRIED, StepRow
from holdfast.core.model.signals import PastStep
from holdfast.core.model.snapshot import completed, is_complete
from holdfast.core.model.state import Instance, decode_state, encode_state
from holdfast.core.model.status import OPEN_STEP, STEP_TRANSITIONS, StepStatus
from holdfast.core.replay.checkpoint import Carried
from holdfast.core.rollback.pending import Undo, Undos, undo_of


class StepTable:
    def __init__(self) -> None:
        self.rows: dict[bytes, StepRow] = {}
        self.receipts: set[tuple[str, str, int]] = set()
        self.passed: list[StepRow] = []  # rows whose step was carried into a later month

    def claim(self, step: bytes, fence: int) -> None:
        """The claim writes under which fence a step was called last."""
        self.rows[step] = msgspec.structs.replace(self.rows[step], fence=fence)

    def apply(self, decision: Decision, now: int) -> None:
        for opened in decision.opened:
            self._insert(opened, now, decision.instance.entity_version)
        # As the store does it: a call that a timer of the same decision cut short was counted before its step ended.
        for retried in decision.retried:
            row = self.rows[retried.id]
            assert row.status in OPEN_STEP
            self.rows[retried.id] = msgspec.structs.replace(
                row, status=_called(row), calls=retried.calls, fence=retried.fence, error=retried.error
            )
        for closed in decision.closed:
            row = self._move(closed.id, closed.status)
            assert closed.at == row.created_at
            self.rows[closed.id] = msgspec.structs.replace(
                row,
                status=closed.status,
                outcome=closed.outcome,
                chosen_edge_ids=closed.chosen,
                output=closed.output,
                error=closed.error if closed.error is not None else row.error,
                closing=closed.closing,
                closed_version=closed.version,
                closed_ordinal=closed.ordinal,
            )
        for moved in decision.moved:
            row = self._move(moved.id, moved.status)
            assert moved.at == row.created_at
            self.rows[moved.id] = msgspec.structs.replace(row, status=moved.status)
        for id, at in decision.superseded:
            row = self._move(id, StepStatus.SUPERSEDED)
            assert at == row.created_at
            self.rows[id] = msgspec.structs.replace(row, status=StepStatus.SUPERSEDED)

    def carry(self, carried: Carried, now: int) -> None:
        instance = carried.instance
        self.rows[carried.checkpoint] = StepRow(
            id=carried.checkpoint,
            node=Checkpoint.node,
            behaviour=CONTROL,
            path="",
            hop=instance.version,
            kind=CONTROL,
            run=0,
            entity_version=instance.entity_version,
            opened_version=instance.version,
            opened_ordinal=0,
            created_at=now,
            cause="checkpoint",
            status=StepStatus.COMPLETED,
            outcome="completed",
            input=instance.data,
            detail=carried.detail,
            closed_version=instance.version,
            closed_ordinal=0,
        )
        for step in carried.steps:
            row = self._move(step.step, StepStatus.SUPERSEDED)
            assert row.created_at == step.at
            ended = {"outcome": CARRIED, "closed_version": instance.version, "closed_ordinal": step.closed}
            self.passed.append(msgspec.structs.replace(row, status=StepStatus.SUPERSEDED, **ended))
            begun = {"opened_version": instance.version, "opened_ordinal": step.opened, "created_at": now}
            self.rows[step.step] = msgspec.structs.replace(row, cause=CARRIED, **begun)

    def _insert(self, opened: Opened, now: int, entity_version: int) -> None:
        receipt = (opened.token, opened.kind, opened.run)
        assert receipt not in self.receipts, f"{receipt} was opened twice"
        self.receipts.add(receipt)
        assert opened.id not in self.rows
        assert opened.closed == (opened.status not in OPEN_STEP)
        self.rows[opened.id] = StepRow(
            id=opened.id,
            node=opened.node,
            behaviour=opened.behaviour,
            path=opened.path,
            hop=opened.hop,
            kind=opened.kind,
            run=opened.run,
            entity_version=entity_version,
            opened_version=opened.version,
            opened_ordinal=opened.ordinal,
            created_at=now,
            cause=opened.cause,
            status=opened.status,
            outcome=str(opened.status) if opened.closed else None,
            chosen_edge_ids=opened.chosen,
            input=opened.input,
            output=opened.output,
            error=opened.error,
            detail=opened.detail,
            closing=opened.closing,
            calls=opened.calls,
            fence=opened.fence,
            closed_version=opened.version if opened.closed else None,
            closed_ordinal=opened.ordinal if opened.closed else None,
        )

    def _move(self, id: bytes, status: StepStatus) -> StepRow:
        row = self.rows[id]
        assert status in STEP_TRANSITIONS[row.status], f"{row.node}: {row.status} may not become {status}"
        return row

    @property
    def open_rows(self) -> list[StepRow]:
        return [row for row in self.rows.values() if row.status in OPEN_STEP]

    def stored(self, instance: Instance) -> Instance:
        """The instance as somebody reads it who has not written it: compensations come from their rows."""
        read = msgspec.structs.replace(instance, state=decode_state(encode_state(instance.state)))
        return read if is_complete(read.state) else completed(read, self.undos())

    def undos(self) -> Undos:
        rows = sorted(self.rows.values(), key=lambda row: (row.opened_version, row.opened_ordinal))
        return Undos(self.undo(row) for row in rows if row.kind == "compensate" and row.closed_version is None)

    def undo(self, row: StepRow) -> Undo:
        fence = max(other.fence for other in self.rows.values() if other.path == row.path)
        return undo_of(row.node, row.path, row.hop, row.id, row.created_at, fence, row.run, row.detail or b"{}")

    def history(self) -> list[PastStep]:
        """What the shell reads for a rollback."""
        return [
            PastStep(
                r.id, r.created_at, r.hop, r.run, r.opened_version, r.opened_ordinal, r.fence, r.node, r.path, r.kind,
                r.status, r.input, r.output, r.detail,
            )
            for r in self.rows.values()
        ]  # fmt: skip


def _called(row: StepRow) -> StepStatus:
    return StepStatus.RUNNING if row.status is StepStatus.PENDING else row.status
