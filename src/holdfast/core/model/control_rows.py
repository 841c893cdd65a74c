"""Control rows: changes of an instance that belong to none of its steps, as its history keeps them.

One type per row, shared by the decisions that write it and the replay that reads it. The order of the fields is the
order of the keys in the row. A field without a value of its own (`UNSET`) leaves its key out. Fields that replay does
not need have defaults, because rows of earlier releases may lack them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.core.model.state import Wait
from holdfast.core.model.status import InstanceStatus


class ControlRow(msgspec.Struct, frozen=True, gc=False):
    node: ClassVar[str]  # in the column where a step row names its node


class Suspended(ControlRow, frozen=True, kw_only=True):
    node = "@suspend"
    status: InstanceStatus
    reason: str
    at: str | UnsetType | None = msgspec.field(name="node", default=UNSET)  # of an error that no step row has
    message: str | UnsetType = UNSET


class Resumed(ControlRow, frozen=True, kw_only=True):
    node = "@resume"
    by: str | None = None
    reason: str | None = None
    again: bool  # do the dead run again?


class FateMet(ControlRow, frozen=True, kw_only=True):
    """The fate of a failure that was postponed until the resume."""

    node = "@fate"
    path: str
    fate: str | None


class BranchLost(ControlRow, frozen=True, kw_only=True):
    node = "@lost"
    path: str


class Held(ControlRow, frozen=True, kw_only=True):
    """A token held in front of its node. The row's input is the value it brought."""

    node = "@hold"
    path: str
    hop: int
    at: str = msgspec.field(name="node")
    run: int
    last: str | None


class Escaped(ControlRow, frozen=True, kw_only=True):
    """A token's escape from its scopes."""

    node = "@escape"
    came_from: str = msgspec.field(name="from")
    path: str
    hop: int


class TimerParked(ControlRow, frozen=True, kw_only=True):
    node = "@park"
    path: str
    wait: str
    purpose: str


class Rescheduled(ControlRow, frozen=True, kw_only=True):
    node = "@reschedule"
    path: str
    was: str
    wait: Wait


class EventKept(ControlRow, frozen=True, kw_only=True):
    node = "@keep"
    event: str = ""
    id: str = ""


class EventsLapsed(ControlRow, frozen=True, kw_only=True):
    node = "@lapse"
    events: int


class TaskOverdue(ControlRow, frozen=True, kw_only=True):
    node = "@overdue"
    path: str
    wait: str


class WaitsChanged(ControlRow, frozen=True, kw_only=True):
    """Other waits of a token that stays where it is: a gate is done, or a timeout has fired."""

    node = "@waits"
    path: str
    waits: tuple[Wait, ...]
    because: str = ""


class EntityFollowed(ControlRow, frozen=True, kw_only=True):
    """Another version of the document. The row's own `entity_version` is that of the instance since then."""

    node = "@entity"
    version: int
    action: str
    material: bool = False
    origin: str | None = None
    asked: tuple[str, ...] = ()  # the paths whose approvals are asked again


class Interrupted(ControlRow, frozen=True, kw_only=True):
    """A verb or an amendment that ended every token. The row's input is the value the root token goes on with."""

    node = "@interrupt"
    verb: str | None = None  # None: an amendment
    regions: tuple[str, ...] = ()
    goes_to: str = msgspec.field(name="node")
    hop: int
    merged: bool = False  # the value is the payload of a call, and merges into the context
    evaluated: Any = None  # the conditions of the verb


class Cancelled(ControlRow, frozen=True, kw_only=True):
    node = "@cancel"
    by: str | None
    reason: str | None


class Aborted(ControlRow, frozen=True, kw_only=True):
    node = "@abort"
    by: str | None = None
    reason: str | None


class ForceFailed(ControlRow, frozen=True, kw_only=True):
    node = "@force_fail"
    by: str | None = None
    reason: str | None


class Expired(ControlRow, frozen=True, kw_only=True):
    """Timeout of the instance: a step's edge handles it (`edge`, `wait`), or the policy does (all other fields)."""

    node = "@expire"
    edge: bool | UnsetType = UNSET
    wait: Wait | UnsetType | None = UNSET  # the next timeout, where a step's edge handled this one
    goes_to: str | UnsetType | None = msgspec.field(name="node", default=UNSET)
    hop: int | UnsetType = UNSET
    buried: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    out: list[str] | UnsetType = UNSET  # paths whose handlers are awaited
    error: Any = UNSET  # the failure, while handlers are awaited


class RollbackBegun(ControlRow, frozen=True, kw_only=True):
    """The begin of a rollback by a cancel or a timeout. A failed step records the begin in its own row."""

    node = "@rollback"
    target: InstanceStatus
    reason: str | None
    by: str | None
    root: bool


class RollbackPlanned(ControlRow, frozen=True, kw_only=True):
    """The plan of a rollback without compensations; the rows of compensations tell any other plan."""

    node = "@plan"
    save_point: str | None = None


class UndoneAgain(ControlRow, frozen=True, kw_only=True):
    node = "@undo_again"
    by: str | None = None
    reason: str | None = None
    target: InstanceStatus


class FinishedLate(ControlRow, frozen=True, kw_only=True):
    """The result of a handler whose branch had lost. The row's input is the output, if it succeeded."""

    node = "@late"
    path: str = ""
    step: str
    done: bool = False


class Requeued(ControlRow, frozen=True, kw_only=True):
    node = "@requeue"
    path: str
    by: str | None = None
    reason: str | None = None
    new: bool = False


class Rerun(ControlRow, frozen=True, kw_only=True):
    node = "@rerun"
    path: str
    hop: int
    at: str = msgspec.field(name="node")
    run: int
    last: str | None
    of: str = ""
    by: str | None = None
    reason: str | None = None
    merged: Any = None  # a new input, where the context takes it in


class Side(msgspec.Struct, frozen=True):
    """One of the two graphs of a migration."""

    definition: str
    version: int
    hash: str


class Standing(msgspec.Struct, frozen=True):
    """The node of a token before and after a migration, the waits that ended and those that began."""

    path: str
    was: str
    now: str
    lifted: tuple[str, ...] = ()
    begun: tuple[Wait, ...] | msgspec.UnsetType = msgspec.UNSET


class Migrated(ControlRow, frozen=True, kw_only=True):
    """A migration to another version. Tokens are keyed by `path@hop`, scopes by their id."""

    node = "@migrate"
    came_from: Side = msgspec.field(name="from")
    went_to: Side = msgspec.field(name="to")
    nodes: dict[str, str]
    tokens: dict[str, Standing]
    scopes: dict[str, str]
    expires: Wait | None
    by: str
    reason: str | None = None


class Checkpoint(ControlRow, frozen=True, kw_only=True):
    """The instance as it was when its open steps were carried into the present month. The row's input is its context.

    Replay begins at the newest one, so the rows before it may go.
    """

    node = "@checkpoint"
    status: InstanceStatus
    reason: str | None
    state: msgspec.Raw  # a snapshot, in the format of its release


RowT = TypeVar("RowT", bound=ControlRow)
CONTROL_ROWS: Final[tuple[type[ControlRow], ...]] = tuple(ControlRow.__subclasses__())
_decoders: Final = {row: msgspec.json.Decoder(row).decode for row in CONTROL_ROWS}


def read_control(row: type[RowT], detail: bytes | None) -> RowT:
    """Decode the detail of a control row; no detail reads as an empty one."""
    return _decoders[row](detail or b"{}")  # type: ignore[return-value]
