"""Control rows keep their bytes: what replay reads was written by this release or by any before it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.model.control_rows import (
    CONTROL_ROWS,
    Aborted,
    BranchLost,
    Cancelled,
    Checkpoint,
    ControlRow,
    EntityFollowed,
    Escaped,
    EventKept,
    EventsLapsed,
    Expired,
    FateMet,
    FinishedLate,
    ForceFailed,
    Held,
    Interrupted,
    Migrated,
    Requeued,
    Rerun,
    Rescheduled,
    Resumed,
    RollbackBegun,
    RollbackPlanned,
    Side,
    Standing,
    Suspended,
    TaskOverdue,
    TimerParked,
    UndoneAgain,
    WaitsChanged,
    read_control,
)
from holdfast.core.model.signals import Failure
from holdfast.core.model.state import State, Token, Wait, encode_state
from holdfast.core.model.status import InstanceStatus, Phase
from holdfast.core.replay.controls import FOLLOWERS

FAILED = InstanceStatus.FAILED
TIMER = Wait("0@1:deadline", "deadline", due=7, ref=b"\1" * 16)
RESTING = Token(3, "open", b"\1" * 16, 7, phase=Phase.RESTING)
SPENT = Failure("SPENT", "No call is left.")

GOLDEN: list[tuple[ControlRow, str, str]] = [
    (Suspended(status=InstanceStatus.DLQ, reason="X"), "@suspend", '{"status":"dlq","reason":"X"}'),
    (
        Suspended(status=InstanceStatus.SUSPENDED, reason="X", at="pay", message="No."),
        "@suspend",
        '{"status":"suspended","reason":"X","node":"pay","message":"No."}',
    ),
    (Resumed(by="ann", reason=None, again=True), "@resume", '{"by":"ann","reason":null,"again":true}'),
    (FateMet(path="0", fate=None), "@fate", '{"path":"0","fate":null}'),
    (BranchLost(path="0/1.0"), "@lost", '{"path":"0/1.0"}'),
    (
        Held(path="0", hop=1, at="pay", run=0, last=None),
        "@hold",
        '{"path":"0","hop":1,"node":"pay","run":0,"last":null}',
    ),
    (Escaped(came_from="0/1.0", path="0", hop=2), "@escape", '{"from":"0/1.0","path":"0","hop":2}'),
    (TimerParked(path="0", wait="w", purpose="timer"), "@park", '{"path":"0","wait":"w","purpose":"timer"}'),
    (
        Rescheduled(path="0", was="w", wait=TIMER),
        "@reschedule",
        '{"path":"0","was":"w","wait":{"id":"0@1:deadline","kind":"deadline","due":7,'
        '"ref":"AQEBAQEBAQEBAQEBAQEBAQ=="}}',
    ),
    (EventKept(event="go", id="01"), "@keep", '{"event":"go","id":"01"}'),
    (EventsLapsed(events=2), "@lapse", '{"events":2}'),
    (TaskOverdue(path="0", wait="w"), "@overdue", '{"path":"0","wait":"w"}'),
    (
        WaitsChanged(path="0", waits=(Wait("w", "gate", "check"),), because="gate"),
        "@waits",
        '{"path":"0","waits":[{"id":"w","kind":"gate","event":"check"}],"because":"gate"}',
    ),
    (
        EntityFollowed(version=3, action="update", material=True, origin="01", asked=("0",)),
        "@entity",
        '{"version":3,"action":"update","material":true,"origin":"01","asked":["0"]}',
    ),
    (
        Interrupted(verb="withdraw", regions=("slot:review",), goes_to="draft", hop=4, merged=True, evaluated=[]),
        "@interrupt",
        '{"verb":"withdraw","regions":["slot:review"],"node":"draft","hop":4,"merged":true,"evaluated":[]}',
    ),
    (Cancelled(by="ann", reason="r"), "@cancel", '{"by":"ann","reason":"r"}'),
    (Aborted(by="ann", reason=None), "@abort", '{"by":"ann","reason":null}'),
    (ForceFailed(by="ann", reason="r"), "@force_fail", '{"by":"ann","reason":"r"}'),
    (Expired(edge=True, wait=None), "@expire", '{"edge":true,"wait":null}'),
    (Expired(goes_to=None, hop=2, buried=False), "@expire", '{"node":null,"hop":2,"buried":false}'),
    (
        Expired(goes_to="late", hop=2, buried=True, reason="R", out=["0"], error=SPENT),
        "@expire",
        '{"node":"late","hop":2,"buried":true,"reason":"R","out":["0"],'
        '"error":{"code":"SPENT","message":"No call is left."}}',
    ),
    (
        RollbackBegun(target=FAILED, reason="R", by=None, root=True),
        "@rollback",
        '{"target":"failed","reason":"R","by":null,"root":true}',
    ),
    (RollbackPlanned(save_point="paid"), "@plan", '{"save_point":"paid"}'),
    (UndoneAgain(by="ann", reason=None, target=FAILED), "@undo_again", '{"by":"ann","reason":null,"target":"failed"}'),
    (FinishedLate(path="0", step="01", done=True), "@late", '{"path":"0","step":"01","done":true}'),
    (
        Requeued(path="0", by="ann", reason=None, new=True),
        "@requeue",
        '{"path":"0","by":"ann","reason":null,"new":true}',
    ),
    (
        Rerun(path="0", hop=1, at="pay", run=1, last=None, of="01", by="ann", reason=None, merged=None),
        "@rerun",
        '{"path":"0","hop":1,"node":"pay","run":1,"last":null,"of":"01","by":"ann","reason":null,"merged":null}',
    ),
    (
        Migrated(
            came_from=Side("01", 1, "h1"), went_to=Side("02", 2, "h2"), nodes={"a": "b"},
            tokens={"0@1": Standing("0", "a", "b", ("w",))}, scopes={"0/0": "s"}, expires=TIMER, by="ann",
        ),
        "@migrate",
        '{"from":{"definition":"01","version":1,"hash":"h1"},"to":{"definition":"02","version":2,"hash":"h2"},'
        '"nodes":{"a":"b"},"tokens":{"0@1":{"path":"0","was":"a","now":"b","lifted":["w"]}},"scopes":{"0/0":"s"},'
        '"expires":{"id":"0@1:deadline","kind":"deadline","due":7,"ref":"AQEBAQEBAQEBAQEBAQEBAQ=="},"by":"ann",'
        '"reason":null}',
    ),
    (
        Checkpoint(
            status=InstanceStatus.RUNNING, reason=None,
            state=msgspec.Raw(encode_state(State({"0": RESTING}, early=1))),
        ),
        "@checkpoint",
        '{"status":"running","reason":null,"state":{"tokens":{"0":{"hop":3,"node":"open",'
        '"step":"AQEBAQEBAQEBAQEBAQEBAQ==","at":7,"phase":"resting"}},"early":1}}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("row", "node", "detail"), GOLDEN)
def test_a_control_row_has_the_bytes_it_always_had(row: ControlRow, node: str, detail: str) -> None:
    assert (row.node, msgspec.json.encode(row).decode()) == (node, detail)


@pytest.mark.parametrize(("row", "node", "detail"), GOLDEN)
def test_replay_reads_what_was_written(row: ControlRow, node: str, detail: str) -> None:
    """Also as the database gives it back: with blanks, and its keys in another order."""
    there = dict(reversed(msgspec.json.decode(detail).items()))
    again = read_control(type(row), msgspec.json.format(msgspec.json.encode(there), indent=1))
    assert msgspec.json.decode(msgspec.json.encode(again)) == there


def test_every_row_has_its_bytes_here_and_a_follower_in_replay() -> None:
    assert {type(row) for row, _, _ in GOLDEN} == set(CONTROL_ROWS) == FOLLOWERS.keys()
    assert len({row.node for row in CONTROL_ROWS}) == len(CONTROL_ROWS)


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        (Resumed, '{"by":"ann","again":false}'),  # before a resume had a reason
        (Expired, '{"node":null,"hop":1}'),
        (Requeued, '{"path":"0","by":"ann","reason":null}'),
        (FinishedLate, '{"path":"0","step":"01"}'),
    ],
)
def test_rows_of_earlier_releases_are_read(row: type[ControlRow], detail: str) -> None:
    assert isinstance(read_control(row, detail.encode()), row)
