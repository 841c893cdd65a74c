"""The five statuses of a workflow that people see, each with the kernel's statuses behind it."""

from __future__ import annotations

from typing import Final

from holdfast.core.model.status import InstanceStatus
from holdfast.errors import Refused

ACTIVE: Final = "active"

KERNEL_STATUSES: Final[dict[str, tuple[str, ...]]] = {
    ACTIVE: ("running", "pending", "rolling_back"),
    "completed": ("completed",),
    "failed": ("failed",),
    "cancelled": ("cancelled", "aborted"),
    "suspended": ("suspended", "dlq"),
}
_SHOWN: Final = {kernel: shown for shown, behind in KERNEL_STATUSES.items() for kernel in behind}


def shown_status(status: str) -> str:
    return _SHOWN[InstanceStatus(status)]


def kernel_statuses(status: str) -> tuple[str, ...]:
    found = KERNEL_STATUSES.get(status)
    if found is None:
        raise Refused(
            f"There is no status {status!r} of workflows.",
            code="STATUS_UNKNOWN",
            hint=f"One of {', '.join(KERNEL_STATUSES)}.",
        )
    return found
