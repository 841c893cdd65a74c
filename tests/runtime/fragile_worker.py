"""A worker process that dies inside `decide` of one event: `python fragile_worker.py <dsn>`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from holdfast import Engine
from holdfast.core.model.decision import Decision, Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import EventArrived, Signal
from holdfast.core.model.state import Instance
from holdfast.runtime.commit import batch

LEASE = 1.0


def decide_or_die(program: Program, instance: Instance, arrived: Signal, facts: Facts) -> Decision:
    """As a defect in native code would, or a payload that eats all memory: nobody is left to count it."""
    if isinstance(arrived, EventArrived) and b"deadly" in (arrived.raw or b""):
        os.kill(os.getpid(), signal.SIGKILL)
    return _decide(program, instance, arrived, facts)


_decide, batch.decide = batch.decide, decide_or_die


async def serve(dsn: str) -> None:
    async with Engine(dsn) as engine, engine.worker(lease=LEASE, maintenance=False):
        await engine.drain(timeout=30)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
