"""Defect 2: work that is released begins with a fresh fence, so that an old result fits a new lease."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("reclaim_work", ("fence = t.fence + 1", "fence = 0"))
    reword("return_claims", ("fence = t.fence + 1", "fence = 0"))
