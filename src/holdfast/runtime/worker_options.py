"""How a worker works. The defaults suit most services."""

from __future__ import annotations

import msgspec

from holdfast.runtime.retention import Retention
from holdfast.store.calls import CallLimits


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    concurrency: int = 1024  # handlers at the same time
    capacity: int = 4096  # steps in hand, waiting for a handler included
    lease: float = 15.0  # seconds
    scan: float = 5.0  # seconds between looks nobody asked for
    claim: int = 256
    queues: tuple[str, ...] = ()  # beside the names of the handlers
    grace: float = 30.0  # seconds running handlers have to finish when the worker leaves
    calls: CallLimits = CallLimits()
    effects: bool = True  # deliver effects beside the handlers
    maintenance: bool = True  # take part in the upkeep of the database
    retention: Retention | None = None  # what the upkeep removes; None: as HOLDFAST_RETENTION says
    missing_handler_cooldown: float = 5.0  # seconds a step waits for a handler before that is told; 0: never
    missing_handler_jitter: float = 0.2  # share by which that time differs from step to step
    missing_handler_log_throttle: float = 60.0  # seconds between two warnings about one handler
