"""Defect 4: a claim does not count its call; only a failure that is reported does."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("claim_work", ("calls = s.calls + 1", "calls = s.calls"))
