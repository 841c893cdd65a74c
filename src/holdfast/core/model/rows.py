"""A step row as it is in the table, for replay to read. JSON columns stay bytes until a reader decodes them."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.model.state import Wait
from holdfast.core.model.status import Phase, StepStatus

# Cause of a row that carries an open step into a later month, and outcome of the row that it takes the place of.
CARRIED: Final = "carried"


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
        """Check if the step was opened and closed at once."""
        return (self.closed_version, self.closed_ordinal) == (self.opened_version, self.opened_ordinal)


class _Retry(msgspec.Struct):
    after: int
    wait: Wait


class RowError(msgspec.Struct):
    code: str = ""
    message: str = ""
    retry: _Retry | None = None


_error = msgspec.json.Decoder(RowError).decode


def read_error(raw: bytes | None) -> RowError:
    return _error(raw or b"{}")


def phase_of_work(row: StepRow, waits: tuple[Wait, ...]) -> tuple[Phase, tuple[Wait, ...]]:
    """The phase and the waits of an open work row: with a handler, before its first call, or waiting for the next."""
    if not row.calls and any(wait.kind == "retry" for wait in waits) and row.status is StepStatus.PENDING:
        return Phase.RETRYING, waits
    waits = tuple(wait for wait in waits if wait.kind != "retry")
    retry = read_error(row.error).retry if row.closed_version is None else None
    if retry is None or retry.after != row.calls:
        return Phase.WORKING, waits
    return Phase.RETRYING, (*waits, retry.wait)
