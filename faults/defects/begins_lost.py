"""Defect 16: nobody asks for the lease before a call."""

from __future__ import annotations

from faults.defects.patching import replace
from holdfast.runtime.worker.worker import Worker


def apply() -> None:
    replace(Worker, "_is_lost", lambda _worker, _job: False)
