"""Defect 12: the organisation is set for the session, and stays when the transaction is over."""

from __future__ import annotations

from faults.defects.patching import reword


def apply() -> None:
    reword("use_tenant", ("set_config('holdfast.org', $1::text, true)", "set_config('holdfast.org', $1::text, false)"))
