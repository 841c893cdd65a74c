"""Recording of a simulation: the rows that the store would write, as a path that people read."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.core.documents.stance import Stance
from holdfast.core.model.control_rows import Interrupted, read_control
from holdfast.core.model.decision import Closed, Decision, Opened, TaskClosed, TaskOpened
from holdfast.core.model.ids import FORWARD
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor
from holdfast.core.model.timestamps import to_datetime
from holdfast.errors import Refused
from holdfast.runtime.envelopes.simulated import Interrupt, Outlook, Question, Reason, Visit

MOST_STEPS: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024  # of outputs, and of the values that expressions read


class TooLong(Refused):
    """Refusal: the simulation has too many steps, or is too large. Nothing of it is returned."""

    code = "SIMULATION_TOO_LARGE"


class Recording:
    """The steps, questions and windows of a simulation so far, in their order."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps: dict[bytes, Visit | Interrupt] = {}
        self.questions: dict[bytes, Question] = {}
        self.outlooks: list[Outlook] = []
        self.error: str | None = None
        self.size = 0

    @property
    def path(self) -> tuple[Visit | Interrupt, ...]:
        return tuple(self.steps.values())

    def take(self, decision: Decision, now: int, actor: Actor, found: Stance | None) -> None:
        at = to_datetime(now)
        rows = [(row.ordinal, row) for row in (*decision.opened, *decision.closed)]
        self._count([row for _, row in rows])
        for _, row in sorted(rows, key=lambda each: each[0]):
            if isinstance(row, Opened):
                self._opened(row, at)
            else:
                self._left(row.id, row, at)
        for task in decision.tasks:
            if isinstance(task, TaskOpened):
                self._asked(task, at, decision.instance.entity_version)
            elif isinstance(task, TaskClosed):
                self._answered(task, at, actor)
        if not self.outlooks or self.outlooks[-1].stance != found:
            self.outlooks.append(Outlook(since=at, stance=found))
        if decision.error is not None:
            self.error = msgspec.json.decode(decision.error).get("code")

    def _count(self, rows: list[Opened | Closed]) -> None:
        """Refuse a simulation of too many steps or bytes: a short script may repeat a long way again and again."""
        self.size += sum(len(row.closing or b"") + len(row.output or b"") for row in rows)
        if len(self.steps) > MOST_STEPS or len(self.outlooks) > MOST_STEPS or self.size > MOST_BYTES:
            raise TooLong(
                f"The simulation has more than {MOST_STEPS} steps, or more than {MOST_BYTES} bytes.",
                hint="Shorten the script, or send a smaller document.",
            )

    def _opened(self, row: Opened, at: datetime) -> None:
        if row.kind == FORWARD:
            kind = self.program.places[row.node].node.kind
            self.steps[row.id] = Visit(node=row.node, kind=kind, entered=at, status=str(row.status))
            if row.closed:
                self._left(row.id, row, at)
        elif row.node == Interrupted.node:
            detail = read_control(Interrupted, row.detail)
            self.steps[row.id] = Interrupt(at=at, target=detail.goes_to, verb=detail.verb)

    def _left(self, id: bytes, row: Opened | Closed, at: datetime) -> None:
        visit = self.steps.get(id)
        if not isinstance(visit, Visit):
            return
        evaluated: list[dict[str, Any]] = msgspec.json.decode(row.closing or b"{}").get("evaluated") or []
        reasons = tuple(
            Reason(
                expression=each["expression"],
                values=each.get("variables", {}),
                result=each["result"],
                edges=tuple(each["chosen_edge_ids"]),
            )
            for each in evaluated
        )
        self.steps[id] = replace(
            visit,
            left=at,
            status=str(row.status),
            edges=tuple(msgspec.json.decode(row.chosen or b"[]")),
            why=reasons,
            output=None if row.output is None else msgspec.json.decode(row.output),
            error=None if row.error is None else msgspec.json.decode(row.error).get("code"),
        )

    def _asked(self, task: TaskOpened, at: datetime, version: int) -> None:
        self.questions[task.id] = Question(
            node=task.node,
            asked=at,
            version=version,
            roles=task.roles,
            assignee=task.assignee,
            due=None if task.due is None else to_datetime(task.due),
        )

    def _answered(self, task: TaskClosed, at: datetime, actor: Actor) -> None:
        by = actor.id if task.decision is not None else None
        self.questions[task.id] = replace(self.questions[task.id], closed=at, decision=task.decision, by=by)
