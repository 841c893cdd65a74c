"""Whoever checks the promises must notice when one is broken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from promises import Call, Row, Tale, backwards, behind, check, fork_depths, racing, succeeded

from holdfast import Branch, Flow, Retry, Undo


def step(name: str) -> Branch:
    return Branch().step(name, "work", undo=Undo("undo", name=f"un-{name}"))


FLOW = (
    Flow("order")
    .step("a", "work", undo=Undo("undo", name="un-a"))
    .save_point("point")
    .fork("fork", step("b").step("b2", "work", undo=Undo("undo", name="un-b2")), step("c"))
    .join("join")
    .condition("big", "input.n > 1", step("small"))
    .step("last", "work", undo=Undo("undo", name="un-last"))
    .build()
)  # fmt: skip
CALLED = ["a", "b", "c", "b2", "last"]


def tale(**changes: Any) -> Tale:
    """`last` fails; `c`, `b2` and `b` are taken back behind it, `a` stands before the save point."""
    forward = ["a", "point", "fork", "b", "c", "b2", "join", "big", "last"]
    standing = {"a", "point"}
    rows = [
        Row(
            name, "forward", 0, "completed" if name in standing else "rolled_back", "completed", (n, 0), (n + 1, 0)
        )._replace(calls=int(name in CALLED))
        for n, name in enumerate(forward)
    ]
    rows[-1] = rows[-1]._replace(outcome="error")
    rows.append(Row("@rollback", "control", 0, "completed", "completed", (9, 1), (9, 1)))
    undone = ["un-last", "un-b2", "un-b", "un-c"]
    rows += [
        Row(name, "compensate", 0, "completed", "completed", (10, n), (11 + n, 0), calls=1)
        for n, name in enumerate(undone)
    ]
    names = [*CALLED, *undone]
    calls = [Call(2 * n, name, 1, "begun", 1) for n, name in enumerate(names)]
    calls += [Call(2 * n + 1, name, 1, "done", 1) for n, name in enumerate(names) if name != "last"]
    return msgspec.structs.replace(Tale(FLOW, "failed", rows, sorted(calls)), **changes)


def _with_late_row(call: Call, opened: int) -> Tale:
    row = Row("small", "forward", 0, "failed", "error", (opened, 3), (13, 0), calls=1)
    return tale(rows=[*tale().rows, row], calls=sorted([*tale().calls, call]))


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


@pytest.mark.parametrize("order", [["un-c", "un-b2", "un-b"], ["un-b2", "un-b", "un-c"]])
def test_a_step_that_failed_in_a_pause_is_the_first_when_it_is_over(order: list[str]) -> None:
    done = ["a", "point", "fork", "b", "b2"]
    rows = [
        Row(name, "forward", 0, "completed" if n < 2 else "rolled_back", "completed", (n, 0), (n + 1, 0))
        ._replace(calls=int(name in CALLED))
        for n, name in enumerate(done)
    ]  # fmt: skip
    rows.append(Row("c", "forward", 0, "rolled_back", "error", (3, 1), (8, 0), calls=1))
    moments = {"@suspend": 6, "@resume": 9, "@rollback": 9}
    rows += [Row(name, "control", 0, "completed", "completed", (at, 0), (at, 0)) for name, at in moments.items()]
    rows += [
        Row(name, "compensate", 0, "completed", "completed", (9, n), (10 + n, 0), calls=1)
        for n, name in enumerate(order)
    ]
    calls = [Call(2 * n, name, 1, "begun", 1) for n, name in enumerate(["a", "b", "b2", "c", *order])]
    calls += [Call(call.seq + 1, call.step, 1, "done", 1) for call in calls if call.step != "c"]
    told = Tale(FLOW, "failed", rows, sorted(calls))
    if order[0] == "un-c":
        check(told)
    else:
        with pytest.raises(AssertionError, match="promised is"):
            check(told)


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
    rows = [*tale().rows, Row("un-a", "compensate", 0, "completed", "completed", (10, 9), (19, 0), calls=1)]
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
        check(_with_late_row(Call(99, "small", 1, "begun", 1), opened=5))


def test_a_step_that_opened_after_the_rollback() -> None:
    with pytest.raises(AssertionError, match="opened after the rollback"):
        check(_with_late_row(Call(11, "small", 1, "begun", 1), opened=12))


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


# --- calls on the way forward -----------------------------------------------------------------------------------------


def again(name: str, *, last: str = "rolled_back") -> list[Row]:
    """The rows of a tale in which this step has a second run, as after a pause or a dead letter."""
    rows = [row._replace(status="superseded", outcome="error") if row.node == name else row for row in tale().rows]
    run = next(row for row in tale().rows if row.node == name)
    return [*rows, run._replace(run=1, status=last)]


def called_again(name: str, attempt: int) -> list[Call]:
    """The first call fails, another one of that number follows it at once."""
    calls = [call for call in tale().calls if call != (2 * CALLED.index(name) + 1, name, 1, "done", 1)]
    at = 2 * CALLED.index(name) + 1
    return sorted([*calls, Call(at, name, attempt, "begun", 1), Call(at, name, attempt, "done", 1)])


def test_a_second_call_of_a_step_that_has_one() -> None:
    rows = [row._replace(calls=2) if row.node == "b" else row for row in tale().rows]
    with pytest.raises(AssertionError, match=r"b has 1 calls and began \[1, 2\]"):
        check(tale(rows=rows, calls=called_again("b", 2)))


def test_a_step_that_may_not_be_repeated_has_one_call_whatever_its_retries_say() -> None:
    once = Flow("once").step("a", "work", retry=Retry(attempts=3), idempotent=False).build()
    rows = [Row("a", "forward", 0, "completed", "completed", (1, 0), (2, 0), calls=2)]
    calls = [Call(n, "a", n, what, 1) for n, what in ((1, "begun"), (2, "begun"), (2, "done"))]
    with pytest.raises(AssertionError, match="a has 1 calls"):
        check(Tale(once, "completed", rows, calls))
    check(Tale(once, "completed", [rows[0]._replace(calls=1)], [Call(1, "a", 1, w, 1) for w in ("begun", "done")]))


def test_the_same_call_twice_in_one_run() -> None:
    with pytest.raises(AssertionError, match=r"b began \[1, 1\] in 1 runs"):
        check(tale(calls=called_again("b", 1)))


def test_a_call_that_was_not_counted_and_one_that_was_not_made() -> None:
    for calls, broken in ((0, "1 times, 0 were counted"), (2, "1 times, 2 were counted")):
        rows = [row._replace(calls=calls) if row.node == "b" else row for row in tale().rows]
        with pytest.raises(AssertionError, match=f"b was called {broken}"):
            check(tale(rows=rows))


def test_a_call_that_was_counted_and_is_not_made_when_its_worker_answers() -> None:
    rows = [
        row._replace(outcome="after_cancel", code="NOT_CALLED_AGAIN") if row.node == "b" else row for row in tale().rows
    ]
    calls = [call for call in tale().calls if (call.step, call.what) != ("b", "done")]
    check(tale(rows=rows, calls=calls))
    with pytest.raises(AssertionError, match="b was called 1 times, 2 were counted"):
        check(tale(rows=[row._replace(calls=2) if row.node == "b" else row for row in rows], calls=calls))


@pytest.mark.parametrize("status", ["skipped", "cancelled"])
def test_one_call_of_what_was_stopped_may_be_counted_in_vain_unless_its_worker_answered(status: str) -> None:
    def stopped(calls: int, outcome: str) -> Tale:
        race = Flow("race").fork("both", step("b"), step("c")).join("won", "any").build()
        rows = [
            Row("b", "forward", 0, status, outcome, (1, 0), (2, 0), calls=calls, code="NOT_CALLED_AGAIN"),
            Row("@abort", "control", 0, "completed", None, (9, 1), (9, 1)),
        ]
        return Tale(race, "aborted", rows, [Call(1, "b", 1, "begun", 1)])

    check(stopped(1, "after_cancel"))
    check(stopped(2, "lost"))
    for calls, outcome in ((2, "after_cancel"), (3, "lost")):
        with pytest.raises(AssertionError, match=f"b was called 1 times, {calls} were counted"):
            check(stopped(calls, outcome))


def test_a_call_that_died_with_its_process_is_counted_apart() -> None:
    """Nobody knows whether it began; more than were counted never did."""
    lost = frozenset({7})
    rows = [row._replace(calls=2) if row.node == "b" else row for row in tale().rows]
    calls = [call._replace(pid=7) if call.step == "a" else call for call in tale().calls]
    check(tale(rows=rows, calls=calls, killed=lost))
    with pytest.raises(AssertionError, match="b was called 1 times, 0 were counted"):
        check(tale(rows=[r._replace(calls=0) if r.node == "b" else r for r in rows], calls=calls, killed=lost))


def test_a_step_that_ran_again_after_a_pause() -> None:
    with pytest.raises(AssertionError, match="b ran 2 times without a letter for each"):
        check(tale(rows=again("b"), calls=called_again("b", 1)))
    check(tale(rows=again("b"), calls=called_again("b", 1), answered=("b",)))


def test_a_step_that_succeeded_twice_in_one_run() -> None:
    twice = Flow("twice").step("a", "work", retry=Retry(attempts=2)).build()
    rows = [Row("a", "forward", 0, "completed", "completed", (1, 0), (2, 0), calls=2)]
    calls = [Call(2 * n + (what == "done"), "a", n, what, 1) for n in (1, 2) for what in ("begun", "done")]
    with pytest.raises(AssertionError, match="a succeeded 2 times in 1 runs"):
        check(Tale(twice, "completed", rows, calls))
    check(Tale(twice, "completed", rows, calls, killed=frozenset({1})))


def test_a_step_that_completed_without_a_call_that_did() -> None:
    with pytest.raises(AssertionError, match="b completed, and no call of it did"):
        check(tale(calls=[call for call in tale().calls if (call.step, call.what) != ("b", "done")]))


# --- ends without a rollback ------------------------------------------------------------------------------------------

REPAIRED = Flow("repaired", dlq=True).step("a", "work").step("b", "work").build()


def aborted(*late: Row, b: str = "skipped") -> Tale:
    """`b` is paused in DLQ mode when somebody aborts the instance."""
    rows = [
        Row("a", "forward", 0, "completed", "completed", (1, 0), (2, 0), calls=1),
        Row("b", "forward", 0, b, "error", (2, 1), (9, 0), calls=1),
        Row("@abort", "control", 0, "completed", None, (9, 1), (9, 1)),
    ]
    calls = [Call(1, "a", 1, "begun", 1), Call(2, "a", 1, "done", 1), Call(3, "b", 1, "begun", 1)]
    return Tale(REPAIRED, "aborted", [*rows, *late], calls)


def test_a_flow_that_is_aborted() -> None:
    check(aborted())
    with pytest.raises(AssertionError, match="b is rolled_back in an instance that aborted"):
        check(aborted(b="rolled_back"))
    with pytest.raises(AssertionError, match="opened after the end"):
        check(aborted(Row("c", "forward", 0, "skipped", None, (10, 0), (10, 1))))


def test_whatever_is_over_without_a_rollback_has_a_cause() -> None:
    found = aborted()
    for end in ("failed", "cancelled"):
        with pytest.raises(AssertionError, match=f"{end} without a rollback"):
            check(msgspec.structs.replace(found, status=end))
    with pytest.raises(AssertionError, match="nothing made it aborted"):
        check(msgspec.structs.replace(found, rows=found.rows[:-1]))


def test_the_depth_of_forks_is_not_that_of_conditions() -> None:
    inner = Branch().condition("big", "input.n > 1", step("e").parallel("deep", ("f", "work"), ("g", "work")))
    flow = Flow("deep").fork("outer", inner.step("h", "work"), step("i")).join("met").build()
    assert dict(fork_depths(flow.items)) == {"outer": 1, "deep": 2}


def test_who_may_lose_a_race() -> None:
    inner = Branch().fork("both", step("c"), step("d")).join("all").step("e", "work")
    flow = Flow("race").step("a", "work").fork("fork", step("b"), inner).join("first", "any").build()
    assert set(racing(flow.items)) == {"b", "both", "c", "d", "all", "e"}


@pytest.mark.parametrize("lost", ["c", "first"])
def test_a_rollback_because_somebody_lost_a_race(lost: str) -> None:
    flow = (
        Flow("race").fork("fork", Branch().step("b", "work"), Branch().step("c", "work")).join("first", "any").build()
    )
    rows = [
        Row(name, "forward", 0, "rolled_back", "error" if name == lost else "completed", (1, n), (3, n))
        for n, name in enumerate(["fork", "b", "c", "first"])
    ]
    rows.append(Row("@rollback", "control", 0, "completed", "completed", (3, 9), (3, 9)))
    calls = [
        Call(n, name, 1, what, 1) for n, (name, what) in enumerate([("b", "begun"), ("b", "done"), ("c", "begun")])
    ]
    rows = [row._replace(calls=1) if row.node in ("b", "c") else row for row in rows]
    told = Tale(flow, "failed", rows, [*calls, Call(3, "c", 1, "done", 1)])
    if lost == "first":
        check(told)
    else:
        with pytest.raises(AssertionError, match="has only lost a race"):
            check(told)


def test_a_success_that_is_skipped_is_noticed() -> None:
    rows = [row._replace(status="skipped") if row.node == "c" else row for row in tale().rows if row.node != "un-c"]
    with pytest.raises(AssertionError, match="c succeeded and was skipped"):
        check(tale(rows=rows, calls=[call for call in tale().calls if call.step != "un-c"]))


def test_a_success_of_a_call_that_was_made_anew_meanwhile_does_not_count() -> None:
    begun, done = Call(1, "c", 1, "begun", 1), Call(3, "c", 1, "done", 1)
    again = Call(2, "c", 2, "begun", 2)
    assert succeeded(tale(calls=[begun, done])) == {"c"}
    assert succeeded(tale(calls=[begun, again, done])) == set()
    assert succeeded(tale(calls=[begun, again, done, Call(4, "c", 2, "done", 2)])) == {"c"}
