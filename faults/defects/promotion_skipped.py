"""Defect 18: the commit of an ACK does not make the next fact of its consumer and instance due."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword(
        "promote_deliveries",
        ("and t.seq = h.seq and t.next_due is null", "and t.seq = h.seq - 1 and t.next_due is null"),
    )
