"""Defect 4: a claim does not count its call; only a failure that is reported does."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("claim_work", ("calls = s.calls + case when l.unrun then 0 else 1 end", "calls = s.calls"))
