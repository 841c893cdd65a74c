"""Defect 7: the commit that opens a wait for a keyed event does not take turns with the event's senders."""

from __future__ import annotations

from typing import Any

from faults.defects.patching import replace
from holdfast.runtime.commit import batch
from holdfast.store.commit import needs


def apply() -> None:
    replace(needs, "lock_event_keys", _nothing)
    replace(batch, "lock_event_keys", _nothing)


async def _nothing(session: Any, keys: Any) -> None:
    return None
