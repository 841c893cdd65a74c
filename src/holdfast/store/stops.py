"""Which work rows of an instance are not to be run any more after a batch of decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.decision import Decision
from holdfast.store.queue import NOT_TO_START, TOLD_TO_STOP


def add_stops(rows: list[tuple[Any, ...]], id: bytes, decisions: Sequence[Decision]) -> None:
    """Rows of stop_work. A later decision of the batch may have the result already, and use the path again."""
    queues: dict[str, str] = {}
    for decision in decisions:
        for change in (*decision.released, *decision.dispatches):
            queues.pop(change.path, None)
        queues.update(dict.fromkeys(decision.halts, NOT_TO_START))
        queues.update(dict.fromkeys(decision.stops, TOLD_TO_STOP))
    rows += [(id, id[15], path, queue) for path, queue in queues.items()]
