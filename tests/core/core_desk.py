"""A run with people in it: the tasks it opens, and their decisions."""

from __future__ import annotations

from typing import Any

import msgspec
from core_run import Run

from holdfast.core.model.decision import TaskClosed, TaskOpened, TaskRenamed
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor, Decided

ANN = Actor("ann")


class Desk(Run):
    """A run with the tasks it has opened and closed."""

    def __init__(self, program: Program, **options: Any) -> None:
        super().__init__(program, **options)
        self.open: dict[bytes, TaskOpened] = {}
        self.over: dict[bytes, TaskClosed] = {}

    def _commit(self, decision: Any) -> None:
        super()._commit(decision)
        for change in decision.tasks:
            if isinstance(change, TaskOpened):
                assert change.id not in self.open
                self.open[change.id] = change
            elif isinstance(change, TaskRenamed):
                assert self.open[change.id].node == change.was
                self.open[change.id] = msgspec.structs.replace(self.open[change.id], node=change.now)
            else:
                del self.open[change.id]
                self.over[change.id] = change
        waited = {w.ref for t in self.tokens.values() for w in t.waits if w.kind == "task"}
        assert waited == set(self.open), "each open task has a token that waits for it, and the other way round"

    def task_at(self, node: str) -> TaskOpened:
        [found] = [t for t in self.open.values() if t.node == node]
        return found

    def decide(self, node: str, decision: str, actor: Actor = ANN, **options: Any) -> Desk:
        payload, facts = options.pop("payload", None), options.pop("facts", None)
        raw = None if payload is None else msgspec.json.encode(payload)
        signal = Decided(b"d" * 16, self.task_at(node).id, decision, raw, **options)
        self.apply(signal, actor, task=facts)
        return self

    @property
    def ends(self) -> list[tuple[str, str | None]]:
        """How the tasks ended that are over."""
        return [(t.status, t.decision or t.reason) for t in self.over.values()]


def desk(program: Program, input: Any = None) -> Desk:
    run = Desk(program)
    run.start(input)
    return run
