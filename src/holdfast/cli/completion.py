"""Completions for the shell. If the database does not answer, there are none, and no error."""

from __future__ import annotations

from holdfast.core.model.status import InstanceStatus
from holdfast.errors import HoldfastError
from holdfast.runtime.engine.sync import SyncEngine
from holdfast.settings import Settings


def complete_flow(incomplete: str) -> list[str]:
    """Names of flows; only where a database is named, because Tab must not start one."""
    try:
        if not Settings.from_environment().dsn:
            return []
        with SyncEngine() as engine:
            return [flow.name for flow in engine.flows() if flow.name.startswith(incomplete)]
    except (HoldfastError, OSError):
        return []


def complete_status(incomplete: str) -> list[str]:
    return [str(status) for status in InstanceStatus if status.startswith(incomplete)]
