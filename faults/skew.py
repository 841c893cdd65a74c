"""A process whose own clock is wrong by FAULTS_SKEW seconds: `apply()` before anything reads it.

The wall clock only: the engine may use its monotonic clock, and a process cannot be wrong about how much time passes.
"""

from __future__ import annotations

import os
import time

VARIABLE = "FAULTS_SKEW"


def seconds() -> float:
    return float(os.environ.get(VARIABLE, "0"))


def apply() -> None:
    real, skew = time.time, seconds()
    time.time = lambda: real() + skew
    time.time_ns = lambda: int(time.time() * 1e9)
