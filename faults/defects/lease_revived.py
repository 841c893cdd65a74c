"""Defect 3: a renewal does not ask whether the lease is still good."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("renew_lease", (" and lease_until > clock_timestamp() and stopped_at is null", ""))
