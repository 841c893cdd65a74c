"""Defect 19: every fact is due at once, whatever is open before it."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword(
        "insert_deliveries",
        ("and o.closed_at is null and o.seq < f.seq", "and o.closed_at is null and o.seq < f.seq - f.seq"),
    )
