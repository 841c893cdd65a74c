"""Every output of a decision has its place: a field, its statements, and where those stand in the lock order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from store_batches import batch, decision, dispatch, happened, instance, later, release, visit

from holdfast.core.machine.gates import GATE
from holdfast.core.model.decision import (
    Answered,
    Closed,
    Decision,
    Effect,
    Fact,
    KeyWait,
    Letter,
    Moved,
    Notice,
    Outgoing,
    Retried,
    TaskClosed,
    TaskOpened,
    TaskRenamed,
    Timer,
)
from holdfast.core.model.state import State, Token, Wait
from holdfast.core.model.status import StepStatus
from holdfast.store.commit.batch import ORDER, writes
from holdfast.store.commit.rows import OUTPUTS, Entry
from holdfast.store.pg.statements import SQL, base_name

ID = bytes(16)
HELD = Token(hop=1, node="Open", waits=(Wait("0@1", GATE, ref=ID),))
BEFORE = instance(bytes(15) + b"\7", state=State(tokens={"0": HELD}))
STEP = visit(BEFORE)
WAIT = KeyWait("paid", "order-1", "0@1", ID)
# What the batch itself brings, and what counts and writes the short way.
OF_THE_BATCH = {
    "delete_signals", "uncount_calls", "insert_statistics", "close_deliveries", "promote_deliveries", "bury_deliveries",
    "requeue_deliveries", "release_deliveries", "watch_instances",
}  # fmt: skip
SHORT = {"begin_instances", "advance_steps", "finish_instances", "undo_steps", "end_rollbacks"}

# One value of each output that gives rows, and the statements it gives them to.
SAMPLES: list[tuple[str, Any, set[str]]] = [
    ("dispatches", [dispatch(STEP, 1)], {"insert_work"}),
    ("dispatches", [dispatch(STEP, 1, held=1, fence=2)], {"hand_off_work"}),
    ("dispatches", [dispatch(STEP, 1, held=1, fence=2, input=None)], {"return_work"}),
    ("released", [release()], {"delete_work"}),
    ("released", [release(fence=0)], {"drop_work"}),
    ("stops", ("0",), {"stop_work"}),
    ("halts", ("0",), {"stop_work"}),
    ("paused", ("0",), {"stop_work"}),
    ("resumed", (("0", "main"),), {"stop_work"}),
    ("closed", [Closed(ID, 1, StepStatus.COMPLETED, "completed", 2, 0)], {"close_steps", "insert_statistics"}),
    ("opened", [STEP], {"open_steps", "insert_receipts"}),
    ("events", [happened(2)], {"insert_events"}),
    ("retried", [Retried(ID, 1, 2, 2, None)], {"retry_steps"}),
    ("superseded", [(ID, 1)], {"supersede_steps"}),
    ("moved", (Moved(ID, 1, StepStatus.COMPENSATION),), {"move_steps"}),
    ("timers", [Timer(ID, "0", "0@1#deadline", "deadline", 9)], {"insert_timers"}),
    ("timers_ended", [ID], {"delete_timers"}),
    ("effects", [Effect(ID, ID, "0@1", "webhook", b"{}", "key", False)], {"insert_effects", "insert_outbox_receipts"}),
    ("key_waits", [WAIT], {"insert_key_waits"}),
    ("key_waits_ended", [WAIT], {"delete_key_waits"}),
    ("outgoing", [Outgoing(ID, ID, "cancel", b"{}")], {"insert_signals"}),
    ("tasks", [TaskOpened(ID, ID, "ask", "0@1", ("boss",), 50, None, None, b"{}")], {"insert_tasks"}),
    ("tasks", [TaskClosed(ID, ID)], {"close_tasks"}),
    ("tasks", [TaskRenamed(ID, "ask", "ask2")], {"rename_tasks"}),
    (
        "letters",
        (Letter(ID, "step", ID, 1, "0", "0@1", "bill", "work", None, None, "SPENT", 3),),
        {"insert_letters"},
    ),
    ("letters_resolved", (Answered(ID, "requeued", "ann"),), {"resolve_letters"}),
    (
        "facts",
        (Fact(ID, "transition", ID, "Done", "Finish", b"{}", 1),),
        {"insert_acks", "insert_deliveries"},
    ),
    (
        "facts",
        (Fact(ID, "hook", ID, "Open", "Finish", b"{}", 1, code="CALL", type=GATE, mode="all"),),
        {"insert_acks", "insert_deliveries", "pass_gates"},
    ),
    ("notices", (Notice("STATE_STALE", "overdue", "It stands still."),), {"insert_notices"}),
    ("rearms", True, {"rearm_deliveries", "resolve_ack_letters"}),
]


def statements(**parts: Any) -> list[str]:
    entry = Entry(BEFORE, [decision(later(BEFORE), **parts)])
    return [base_name(query.name.decode()) for query in writes(batch(1, entry))]


def test_no_field_of_a_decision_is_forgotten() -> None:
    assert OUTPUTS.keys() == {field.name for field in msgspec.structs.fields(Decision)}


def test_every_statement_has_its_place_and_every_place_its_statement() -> None:
    named = {name for output in OUTPUTS.values() for name in output.statements}
    assert named | OF_THE_BATCH | SHORT == ORDER.keys()
    assert ORDER.keys() <= SQL.all.keys()


def test_an_output_with_rows_says_how_they_are_made() -> None:
    without = {name for name, output in OUTPUTS.items() if output.write is None and output.fold is None}
    assert without == {"answer", "children", "keep", "needs", "plain"}, "rows of the batch, or none"


@pytest.mark.parametrize(("field", "value", "expected"), SAMPLES)
def test_an_output_gives_rows_to_its_statements(field: str, value: Any, expected: set[str]) -> None:
    found = statements(**{field: value})
    assert set(found) == expected | {"update_instances"}
    assert expected - {"insert_statistics"} <= set(OUTPUTS[field].statements)
    assert found == sorted(found, key=list(ORDER).index), "in the lock order"


def test_every_output_with_rows_of_a_decision_has_a_sample() -> None:
    by_decision = {name for name, output in OUTPUTS.items() if output.write is not None or output.fold is not None}
    assert by_decision - {"instance", "error"} == {field for field, _, _ in SAMPLES}
    met = {name for _, _, names in SAMPLES for name in names} - OF_THE_BATCH
    every = {name for field in {field for field, _, _ in SAMPLES} for name in OUTPUTS[field].statements}
    assert met == every
