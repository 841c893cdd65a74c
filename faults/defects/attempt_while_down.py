"""Defect 20: the probe of a consumer that is down counts as an attempt when it begins."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("claim_deliveries", ("then d.counts else 0 end", "then 1 else 0 end"))
