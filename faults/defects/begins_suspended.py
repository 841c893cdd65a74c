"""Defect 17: work of a suspended instance stays in its queue."""

from __future__ import annotations

from faults.defects.patching import replace
from holdfast.core.kernel import finish


def apply() -> None:
    replace(finish, "_pauses", lambda _turn: ((), ()))
