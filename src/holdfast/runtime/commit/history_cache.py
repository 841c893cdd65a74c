"""History of sagas, remembered by the process that ran all of it.

A rollback is planned from the history. Where every step of an instance was opened, run and committed here, one plain
step after another, that history need not be read: this is the same, and the version that guards the commit guards it
too. Any other event (a step that went through the queue or was called again, a branch, a wait, a large payload) makes
the trail end, and the history is read. So does a version written by another process in between.
"""

from __future__ import annotations

from typing import Final, Protocol

from holdfast.core.model.decision import Closed, Decision, Opened
from holdfast.core.model.signals import PastStep
from holdfast.core.model.status import STEP_COMPLETED
from holdfast.runtime.catalog import Catalog
from holdfast.store.commit.history import past_step
from holdfast.store.commit.rows import Entry

MOST: Final = 20_000  # instances
LONGEST: Final = 64  # steps
LARGEST: Final = 8_192  # bytes of all inputs and outputs of one instance


class Committed(Protocol):
    """The facts about a commit that a trail reads: the flows, and the steps leased to this process."""

    catalog: Catalog
    leased: set[bytes]


class Trail:
    """Steps one after another: every one of them but the last is completed."""

    __slots__ = ("opened", "outputs", "size", "version")

    def __init__(self) -> None:
        self.version = 0
        self.opened: list[tuple[Opened, int]] = []
        self.outputs: list[bytes | None] = []
        self.size = 0

    def add(self, decision: Decision) -> None:
        opened = decision.opened[0]
        for closed in decision.closed:
            self.outputs.append(closed.output)
            self.size += len(closed.output or b"")
        self.opened.append((opened, decision.instance.updated))
        self.size += len(opened.input or b"")
        self.version = decision.instance.version

    @property
    def is_small(self) -> bool:
        return self.size <= LARGEST and len(self.opened) <= LONGEST

    def steps(self, failed: Closed) -> list[PastStep]:
        """All of them as they are once the last one has failed."""
        done = zip(self.opened, self.outputs, strict=False)
        last = past_step(*self.opened[-1], failed.status, failed.output)
        return [*(past_step(opened, at, STEP_COMPLETED, output) for (opened, at), output in done), last]


class Trails:
    def __init__(self) -> None:
        self._of: dict[bytes, Trail] = {}

    def committed(self, plan: Committed, id: bytes, entry: Entry) -> None:
        decision = entry.decisions[0]
        if decision.plain == "begin":
            program = plan.catalog.known(decision.instance.definition)
            trail = self._begin(id) if program is not None and program.undoes else None
        else:
            trail = self._of.get(id)
        if trail is None:
            return
        if trail.version == entry.before.version and _is_a_plain_step(plan, entry):
            trail.add(decision)
            if trail.is_small:
                return
        del self._of[id]

    def past_of(self, entry: Entry) -> list[PastStep] | None:
        """All steps of an instance whose last one has just failed; None: they have to be read."""
        trail, failed = self._of.get(entry.before.id), entry.decisions[0]
        if trail is None or trail.version != entry.before.version:
            return None
        if len(entry.decisions) > 1 or failed.plain != "fail":
            return None
        last = trail.opened[-1][0]
        if last.id != failed.closed[0].id or last.fence != failed.released[0].fence:  # another worker had it in between
            return None
        return trail.steps(failed.closed[0])

    def _begin(self, id: bytes) -> Trail:
        """The oldest goes when there are too many."""
        trail = self._of[id] = Trail()
        if len(self._of) > MOST:
            del self._of[next(iter(self._of))]
        return trail


def _is_a_plain_step(plan: Committed, entry: Entry) -> bool:
    """Check for exactly one step forward, leased to this process."""
    decision = entry.decisions[0]
    is_plain = decision.plain in ("begin", "advance") and len(entry.decisions) == 1
    return is_plain and decision.dispatches[0].step in plan.leased
