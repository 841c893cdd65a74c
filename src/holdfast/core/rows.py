"""A step row as it lies in the table: what replay reads. JSON columns stay bytes until somebody looks inside."""

from __future__ import annotations

import msgspec

from holdfast.core.status import StepStatus


class StepRow(msgspec.Struct, frozen=True, gc=False):
    id: bytes
    node: str
    behaviour: str
    path: str
    hop: int
    kind: str
    run: int
    entity_version: int
    opened_version: int
    opened_ordinal: int
    created_at: int
    cause: str
    status: StepStatus
    outcome: str | None = None
    chosen_edge_ids: bytes | None = None
    input: bytes | None = None
    output: bytes | None = None
    error: bytes | None = None
    detail: bytes | None = None
    closing: bytes | None = None
    calls: int = 0
    fence: int = 0
    closed_version: int | None = None
    closed_ordinal: int | None = None

    @property
    def is_at_once(self) -> bool:
        """Opened and closed in one stroke."""
        return (self.closed_version, self.closed_ordinal) == (self.opened_version, self.opened_ordinal)
