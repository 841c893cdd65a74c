"""Settings of a worker. The defaults suit most services."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import Refused
from holdfast.runtime.ops.retention import Retention
from holdfast.store.commit.calls import CallLimits


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    concurrency: int = 1024  # handlers at the same time
    capacity: int = 4096  # steps in hand, waiting for a handler included
    lease: float = 15.0  # seconds
    scan: float = 5.0  # seconds between scans without a hint
    claim: int = 256
    queues: tuple[str, ...] = ()  # beside the names of the handlers
    grace: float = 30.0  # seconds running handlers have to finish when the worker leaves
    calls: CallLimits = CallLimits()
    effects: bool = True  # deliver effects beside the handlers
    consumers: bool = True  # send facts to the consumers of this process, and push to others
    maintenance: bool = True  # take part in the upkeep of the database
    retention: Retention | None = None  # what the upkeep removes; None: as HOLDFAST_RETENTION says
    missing_handler_cooldown: float = 5.0  # seconds a step waits for a handler before that is told; 0: never
    missing_handler_jitter: float = 0.2  # share by which that time differs from step to step
    missing_handler_log_throttle: float = 60.0  # seconds between two warnings about one handler


def take_options(given: Mapping[str, Any]) -> WorkerOptions:
    """The options by their names; a name that is none of them is refused with the nearest that is."""
    known = WorkerOptions.__struct_fields__
    for name in given:
        if name not in known:
            similar = difflib.get_close_matches(name[:80], known, n=1)
            raise Refused(
                f"A worker has no option {name!r}.",
                code="WORKER_OPTION_UNKNOWN",
                hint=f"Did you mean {similar[0]}?" if similar else f"It takes {', '.join(known)}.",
            )
    return WorkerOptions(**given)
