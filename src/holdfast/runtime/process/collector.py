"""Garbage collection in a worker process: loaded code and data stay, most later objects die young."""

from __future__ import annotations

import gc


def calm_collector() -> None:
    """Look through the heap less often. For processes of the engine: a library does not do this to its host."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
