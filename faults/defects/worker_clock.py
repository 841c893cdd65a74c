"""Defect 11: timers and leases are compared with the clock of the worker, wrong as it may be."""

from __future__ import annotations

from faults import skew
from faults.defects.patching import reword


def apply() -> None:
    mine = f"(clock_timestamp() + interval '{skew.seconds()} seconds')"
    reword("fire_timers", ("(select holdfast.clock())", mine))
    reword("read_next_due", ("holdfast.clock()", mine))
    reword("insert_worker", ("clock_timestamp() +", f"{mine} +"))
    reword("renew_lease", ("clock_timestamp()", mine))
    reword("reclaim_work", ("<= clock_timestamp()", f"<= {mine}"))
