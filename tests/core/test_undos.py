"""What is left of a rollback, in memory and in a snapshot."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.snapshot import read_state
from holdfast.core.state import Rollback, State, encode_state
from holdfast.core.status import InstanceStatus
from holdfast.core.undos import LARGEST, Undo, Undos, worth_keeping

IDS = st.binary(min_size=16, max_size=16)
NUMBERS = st.integers(0, 2**62)
UNDOS = st.builds(
    Undo, st.text(), st.text(), NUMBERS, IDS, NUMBERS, IDS, NUMBERS, NUMBERS, st.integers(0, 9), st.booleans()
)


def rolling_back(undos: Undos) -> State:
    return State(rollback=Rollback(InstanceStatus.FAILED, plan=undos))


@given(st.lists(UNDOS, max_size=5).map(Undos))
def test_a_snapshot_gives_back_what_it_was_given(undos: Undos) -> None:
    assert read_state(encode_state(rolling_back(undos))) == rolling_back(undos)


@given(st.lists(UNDOS, max_size=5).map(Undos))
def test_a_snapshot_of_nested_arrays_is_read_too(undos: Undos) -> None:
    document = json.loads(encode_state(rolling_back(undos)))
    document["rollback"]["plan"] = msgspec.to_builtins(list(undos))
    assert read_state(json.dumps(document).encode()) == rolling_back(undos)


def test_a_snapshot_holds_them_as_one_text() -> None:
    undos = Undos([Undo("undo", "0", 1, b"s" * 16, 7, b"o" * 16, 8)])
    assert isinstance(json.loads(encode_state(rolling_back(undos)))["rollback"]["plan"], str)


def test_the_rest_is_what_follows_the_present_one() -> None:
    first, second = (Undo(name, "0", 1, b"s" * 16, 7, b"o" * 16, 8) for name in ("first", "second"))
    both = Undos([first, second])
    assert both[0] == first
    assert list(both.rest) == [second]
    assert len(both.rest.rest) == 0
    assert not both.rest.rest


def test_inputs_go_with_their_compensations_and_not_into_the_snapshot() -> None:
    first, second = (Undo(name, "0", 1, b"s" * 16, 7, b"o" * 16, 8) for name in ("first", "second"))
    undos = Undos([first, second], (b"1", b"2"))
    assert (undos.input, undos.rest.input, undos.rest.rest.input) == (b"1", b"2", None)
    assert (undos.with_fence("0", 9).rest[0].fence, undos.with_fence("0", 9).rest.input) == (9, b"2")
    stored = read_state(encode_state(rolling_back(undos)))
    assert stored == rolling_back(undos)
    assert stored.rollback is not None
    assert stored.rollback.plan is not None
    assert stored.rollback.plan.input is None


def test_what_is_large_is_not_kept_unless_it_is_due_at_once() -> None:
    large, small = b"x" * (LARGEST + 1), b"x" * LARGEST
    assert worth_keeping([large, small, large]) == (large, small, None)
    assert worth_keeping([]) == ()
