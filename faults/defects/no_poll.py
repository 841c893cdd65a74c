"""Defect 8: a worker looks when it starts and when it is told to, never by itself."""

from __future__ import annotations

from faults.defects.patching import replace
from holdfast.runtime.worker.worker import Worker

NEVER = 3600.0


def apply() -> None:
    look = Worker.__dict__["_round"]

    async def round_only(worker: Worker, rounds: int) -> float:
        await look(worker, rounds)
        return NEVER

    replace(Worker, "_round", round_only)
