"""Whoever checks the promises must notice when one is broken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from promises import Call, Row, Tale, backwards, behind, check, racing

from holdfast import Branch, Flow


def step(name: str) -> Branch:
    return Branch().step(name, "work").on_failure(f"un-{name}", "undo")


FLOW = (
    Flow("order")
    .step("a", "work").on_failure("un-a", "undo")
    .save_point("point")
    .fork("fork", step("b").step("b2", "work").on_failure("un-b2", "undo"), step("c"))
    .join("join")
    .condition("big", "input.n > 1", step("small"))
    .step("last", "work").on_failure("un-last", "undo")
    .build()
)  # fmt: skip


def tale(**changes: Any) -> Tale:
    """`last` fails; `c`, `b2` and `b` are taken back behind it, `a` stands before the save point."""
    forward = ["a", "point", "fork", "b", "c", "b2", "join", "big", "last"]
    standing = {"a", "point"}
    rows = [
        Row(name, "forward", 0, "completed" if name in standing else "rolled_back", "completed", (n, 0), (n + 1, 0))
        for n, name in enumerate(forward)
    ]
    rows[-1] = rows[-1]._replace(outcome="error")
    rows.append(Row("@rollback", "control", 0, "completed", "completed", (9, 1), (9, 1)))
    undone = ["un-last", "un-b2", "un-b", "un-c"]
    rows += [
        Row(name, "compensate", 0, "completed", "completed", (10, n), (11 + n, 0)) for n, name in enumerate(undone)
    ]
    names = ["a", "b", "c", "b2", "last", *undone]
    calls = [Call(2 * n, name, 1, "begun", 1) for n, name in enumerate(names)]
    calls += [Call(2 * n + 1, name, 1, "done", 1) for n, name in enumerate(names) if name != "last"]
    return msgspec.structs.replace(Tale(FLOW, "failed", rows, sorted(calls)), **changes)


def test_the_definition_read_backwards() -> None:
    assert list(backwards(FLOW.items)) == ["last", "small", "big", "join", "b2", "b", "c", "fork", "point", "a"]
    assert behind(FLOW.items, {"point"}) == {"last", "small", "big", "join", "b2", "b", "c", "fork"}
    assert list(racing(FLOW.items)) == []


def test_a_tale_as_it_should_be() -> None:
    check(tale())


def test_two_compensations_in_the_wrong_order() -> None:
    swap = {"un-b": "un-c", "un-c": "un-b"}
    with pytest.raises(AssertionError, match="promised is"):
        check(tale(calls=[call._replace(step=swap.get(call.step, call.step)) for call in tale().calls]))


def test_the_failed_step_not_first() -> None:
    swap = {"un-last": "un-b2", "un-b2": "un-last"}
    with pytest.raises(AssertionError, match="promised is"):
        check(tale(calls=[call._replace(step=swap.get(call.step, call.step)) for call in tale().calls]))


def test_a_sibling_that_was_forgotten() -> None:
    with pytest.raises(AssertionError, match="promised is"):
        check(tale(calls=[call for call in tale().calls if call.step != "un-c"]))


@pytest.mark.parametrize("code", ["LEASE_LOST", "HANDLER_FAILED"])
def test_a_compensation_that_died_with_its_process_before_it_began(code: str) -> None:
    lost = {"un-c": "failed", "c": "failed"}
    rows = [row._replace(status=lost.get(row.node, row.status)) for row in tale().rows]
    rows = [row._replace(outcome="error", code=code) if row.node == "un-c" else row for row in rows]
    calls = [call for call in tale().calls if call.step != "un-c"]
    if code == "LEASE_LOST":
        check(tale(rows=rows, calls=calls, killed=frozenset({7})))
    else:
        with pytest.raises(AssertionError, match="promised is"):
            check(tale(rows=rows, calls=calls, killed=frozenset({7})))


def test_a_compensation_that_nobody_lost_and_nobody_called() -> None:
    calls = [call._replace(pid=7) if call.step == "b" else call for call in tale().calls if call.step != "un-c"]
    with pytest.raises(AssertionError, match="never began and was not lost"):
        check(tale(calls=calls, killed=frozenset({7})))


def test_a_step_that_was_left_behind() -> None:
    rows = [row._replace(status="completed") if row.node == "join" else row for row in tale().rows]
    with pytest.raises(AssertionError, match="join was left behind"):
        check(tale(rows=rows))


def test_a_rollback_past_the_save_point() -> None:
    calls = [*tale().calls, Call(98, "un-a", 1, "begun", 1), Call(99, "un-a", 1, "done", 1)]
    rows = [*tale().rows, Row("un-a", "compensate", 0, "completed", "completed", (10, 9), (19, 0))]
    with pytest.raises(AssertionError, match="promised is"):
        check(tale(calls=calls, rows=rows))


def test_a_cancel_that_stops_at_the_save_point() -> None:
    with pytest.raises(AssertionError, match=r"left behind|promised is"):
        check(tale(to_root=True, status="cancelled"))


def test_a_compensation_that_took_effect_twice() -> None:
    with pytest.raises(AssertionError, match=r"succeeded 2 times|<="):
        check(tale(calls=[*tale().calls, Call(99, "un-b", 1, "done", 1)]))


def test_forward_work_that_began_after_the_rollback() -> None:
    with pytest.raises(AssertionError, match="forward work began"):
        check(tale(calls=[*tale().calls, Call(99, "c", 2, "begun", 1)]))


def test_a_step_that_opened_after_the_rollback() -> None:
    rows = [*tale().rows, Row("small", "forward", 0, "rolled_back", "completed", (12, 0), (13, 0))]
    with pytest.raises(AssertionError, match="opened after the rollback"):
        check(tale(rows=rows))


def test_something_left_open() -> None:
    rows = [row._replace(status="running") if row.node == "un-c" else row for row in tale().rows]
    with pytest.raises(AssertionError, match="left open"):
        check(tale(rows=rows))


def test_a_compensation_without_a_rollback() -> None:
    rows = [row for row in tale().rows if row.node != "@rollback"]
    with pytest.raises(AssertionError):
        check(tale(rows=rows, status="completed"))


def test_a_failed_step_in_an_instance_that_completed() -> None:
    rows = [Row("a", "forward", 0, "failed", "error", (1, 0), (2, 0))]
    with pytest.raises(AssertionError, match="in an instance that completed"):
        check(tale(rows=rows, calls=[], status="completed"))
