"""What is left of a rollback, in memory, in a snapshot and in rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.snapshot import completed, is_complete, read_state
from holdfast.core.model.state import Instance, Rollback, State, encode_state
from holdfast.core.model.status import InstanceStatus
from holdfast.core.rollback.pending import LARGEST, Undo, Undos, detail_of, undo_of, worth_keeping
from holdfast.errors import HoldfastError

IDS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(0, 2**62)
UNDOS = st.builds(
    Undo, st.text(), st.text(), NUMBERS, IDS, NUMBERS, IDS, NUMBERS, NUMBERS, st.integers(0, 9), st.booleans()
)
FIRST, SECOND = (Undo(name, "0", 1, b"s" * 16, 7, b"o" * 16, 8) for name in ("first", "second"))


def rolling_back(undos: Undos | None) -> State:
    return State(rollback=Rollback(InstanceStatus.FAILED, plan=undos))


def instance(state: State) -> Instance:
    return Instance(bytes(16), "o", bytes(16), "f", 1, 3, InstanceStatus.ROLLING_BACK, state, b"{}")


@given(st.lists(UNDOS, max_size=5).map(Undos))
def test_a_snapshot_counts_them_and_their_rows_give_them_back(undos: Undos) -> None:
    stored = read_state(encode_state(rolling_back(undos)))
    assert stored.rollback is not None
    assert stored.rollback.plan is not None
    assert len(stored.rollback.plan) == len(undos)
    assert is_complete(stored) == (not undos)
    assert completed(instance(stored), undos).state == rolling_back(undos)


def test_a_snapshot_does_not_grow_with_the_plan() -> None:
    long, longer = (len(encode_state(rolling_back(Undos([FIRST] * count)))) for count in (100, 900))
    assert long == longer
    assert json.loads(encode_state(rolling_back(Undos([FIRST] * 100))))["rollback"]["plan"] == 100


def test_rows_that_are_not_as_many_as_the_snapshot_counts_are_an_inconsistency() -> None:
    stored = instance(read_state(encode_state(rolling_back(Undos([FIRST, SECOND])))))
    with pytest.raises(HoldfastError, match="2 compensations left to run, and 1 of their rows") as refused:
        completed(stored, Undos([FIRST]))
    assert refused.value.code == "SNAPSHOT_INCONSISTENT"


@pytest.mark.parametrize("state", [State(), rolling_back(None), rolling_back(Undos()), rolling_back(Undos([FIRST]))])
def test_a_state_in_memory_is_complete(state: State) -> None:
    assert is_complete(state)


def test_what_was_not_read_is_not_taken_for_nothing() -> None:
    unread = Undos.unread(2)
    assert (len(unread), bool(unread), unread == Undos.unread(2), unread == Undos()) == (2, True, True, False)
    with pytest.raises(AssertionError, match="read first"):
        _ = unread[0]
    with pytest.raises(AssertionError, match="read first"):
        list(unread)


@given(UNDOS, st.integers(0, 99))
def test_the_row_of_a_compensation_tells_all_about_it(undo: Undo, ordinal: int) -> None:
    detail = detail_of(ordinal, undo.of, undo.of_at, is_evidence=undo.is_evidence)
    assert json.loads(detail)["ordinal"] == ordinal
    assert undo_of(undo.node, undo.path, undo.hop, undo.step, undo.at, undo.fence, undo.run, detail) == undo


def test_the_rest_is_what_follows_the_present_one() -> None:
    both = Undos([FIRST, SECOND])
    assert both[0] == FIRST
    assert list(both.rest) == [SECOND]
    assert both.rest == Undos([SECOND])
    assert hash(both.rest) == hash(Undos([SECOND]))
    assert len(both.rest.rest) == 0
    assert not both.rest.rest


def test_inputs_go_with_their_compensations() -> None:
    undos = Undos([FIRST, SECOND], (b"1", b"2"))
    assert (undos.input, undos.rest.input, undos.rest.rest.input) == (b"1", b"2", None)
    assert (undos.with_fence("0", 9).rest[0].fence, undos.with_fence("0", 9).rest.input) == (9, b"2")
    assert (undos.rest.with_fence("0", 9)[0].fence, undos.rest.with_fence("0", 9).input) == (9, b"2")


def test_what_is_large_is_not_kept_unless_it_is_due_at_once() -> None:
    large, small = b"x" * (LARGEST + 1), b"x" * LARGEST
    assert worth_keeping([large, small, large]) == (large, small, None)
    assert worth_keeping([]) == ()
