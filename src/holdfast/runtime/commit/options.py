"""Settings and counters of the committer."""

from __future__ import annotations

import msgspec

from holdfast.payloads.bounds import MAX_CONTEXT_BYTES
from holdfast.runtime.commit.batch import KEEP_SECONDS
from holdfast.store.queue.work import AGING


class Options(msgspec.Struct, frozen=True):
    """Settings of the committer. The defaults were measured, see docs/benchmarks.md."""

    lanes: int = 2
    batch: int = 256
    share: int = 32  # a lane takes at least this many, if there are
    linger: float = 0.002
    keep_early: float = KEEP_SECONDS  # how long events wait for their wait
    aging: float | None = AGING  # points of priority that queued work gains per second; 0 or None: none
    race_patience: float = 2.0  # seconds a caller tries again to change what others change
    max_context: int = MAX_CONTEXT_BYTES  # what an instance may keep of what its steps give
    stale_after: float | None = None  # seconds a machine may rest before that is reported; None: any time
    fast_paths: bool = True  # off: every decision is made and written the general way, with the same outcome


class Counters(msgspec.Struct):
    commits: int = 0
    steps: int = 0
    retried: int = 0
    rejected: int = 0
