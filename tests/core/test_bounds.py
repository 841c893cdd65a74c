"""What an instance keeps is bounded, however its steps make it grow. Pure: the limit is one of the facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from core_graphs import call, edge, end, join, line, program, split, state, task
from core_run import Run

from holdfast.core.model.program import Program
from holdfast.core.model.signals import EventArrived
from holdfast.errors import PayloadError, Refused
from holdfast.graph.model import Node, Policy
from holdfast.payloads.bounds import MAX_COMPOSED_DEPTH, is_deep, stored_size

MOST = 10_000
LARGE = "x" * 6_000
TOO_LARGE = "CONTEXT_TOO_LARGE"


def steps(*nodes: Node, **options: Any) -> Program:
    return line(*nodes, policy=Policy(data="context", keeps_error=True, **options), kind="steps")


def error_code(run: Run, node: str) -> str:
    return str(run.data["_last_error"]["code"]) if "_last_error" in run.data else (run.row(node).error or b"").decode()


# --- what steps give --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_error", "status"), [("suspend", "suspended"), ("dlq", "dlq"), ("fail", "failed")])
@pytest.mark.parametrize("last", [False, True], ids=["goes_on", "ends"])
def test_a_result_that_does_not_fit_fails_its_step(on_error: str, status: str, last: bool) -> None:
    nodes = [task("one"), task("two")] if last else [task("one"), task("two"), task("three")]
    run = Run(steps(*nodes, on_error=on_error)).start().done("one", {"a": LARGE}, max_context=MOST)
    before = run.data
    run.done("two", {"b": LARGE}, max_context=MOST)
    assert (run.status, error_code(run, "two")) == (status, TOO_LARGE)
    assert {**run.data, "_last_error": None} == {**before, "_last_error": None}, "what was there stays"
    assert "at most 10000" in str(run.data["_last_error"]["message"])


def test_a_result_that_does_not_fit_takes_the_way_on_error() -> None:
    graph = program(
        [task("one"), end(), task("tell")],
        [edge("one", "end"), edge("one", "tell", "error"), edge("tell", "end")],
        Policy(data="context", on_error="suspend"),
        kind="steps",
    )
    assert Run(graph).start().done("one", {"a": LARGE * 2}, max_context=MOST).nodes == ["tell"]


def test_what_is_done_at_best_effort_stops_nothing() -> None:
    graph = steps(task("one", best_effort=True), task("two"), on_error="suspend")
    assert Run(graph).start().done("one", {"a": LARGE * 2}, max_context=MOST).nodes == ["two"]


def test_what_a_call_did_is_undone_with_its_transaction() -> None:
    run = Run(steps(call("one"), on_error="suspend")).start()
    with pytest.raises(PayloadError) as told:
        run.run_call("one", {"a": LARGE * 2}, max_context=MOST)
    assert (told.value.code, run.nodes) == (TOO_LARGE, ["one"])


# --- what people and other systems send -------------------------------------------------------------------------------


def looping() -> Program:
    return program(
        [state("collect"), end()],
        [edge("collect", "collect", "more"), edge("collect", "end", "enough")],
        Policy(data="context"),
        kind="steps",
    )


def test_a_loop_of_events_grows_no_further_than_the_limit() -> None:
    run = Run(looping()).start()
    for lap in range(3):
        run.apply(EventArrived(b"%016d" % lap, "more", b'{"%d":"%b"}' % (lap, b"x" * 3_000)), max_context=MOST)
    before = run.instance
    with pytest.raises(Refused) as told:
        run.apply(EventArrived(b"%016d" % 9, "more", b'{"9":"%b"}' % (b"x" * 3_000)), max_context=MOST)
    assert (told.value.code, run.instance is before) == (TOO_LARGE, True)
    run.apply(EventArrived(b"%016d" % 10, "more", b'{"1":"less"}'), max_context=MOST)
    assert run.event("enough").status == "completed"


# --- what the engine makes of it --------------------------------------------------------------------------------------


def doubling(mapping: dict[str, str], data: str) -> Program:
    nodes = [state("ask"), Node(id="copy", kind="script", input=mapping), end()]
    ways = [edge("ask", "copy", "again"), edge("copy", "ask"), edge("ask", "end", "enough")]
    return program(nodes, ways, Policy(data=data, on_error="suspend", keeps_error=data == "context"))


@pytest.mark.parametrize(
    ("mapping", "data", "laps"),
    [({"a": "input", "b": "input"}, "value", 40), ({"all": "context"}, "context", 2 * MAX_COMPOSED_DEPTH)],
    ids=["copies", "nests"],
)
def test_a_loop_of_mappings_comes_to_its_limit(mapping: dict[str, str], data: str, laps: int) -> None:
    run = Run(doubling(mapping, data)).start({"n": 1})
    for lap in range(laps):
        if run.status == "suspended":
            break
        run.events = lap
        run.event("again")
    assert run.status == "suspended"
    assert TOO_LARGE in (run.rows("copy")[-1].error or b"").decode()


def test_what_branches_bring_together_is_bounded() -> None:
    graph = program(
        [split("fork"), task("left"), task("right"), join("meet"), end()],
        [
            edge("fork", "left"),
            edge("fork", "right"),
            *[edge(one, "meet") for one in ("left", "right")],
            edge("meet", "end"),
        ],
        Policy(on_error="fail"),
    )
    run = Run(graph).start().done("left", {"a": LARGE}, max_context=MOST).done("right", {"b": LARGE}, max_context=MOST)
    row = run.row("meet")
    assert (run.status, TOO_LARGE in (row.error or b"").decode()) == ("failed", True)
    assert len(row.input or b"") < 1_000, "nothing of it is kept"


def test_numbers_keep_their_type_in_what_is_merged_and_mapped() -> None:
    run = Run(steps(task("one"), task("two"))).start({"a": 1e19}).done("one", {"b": 1e300, "c": 2})
    assert b'"a":10000000000000000000.0' in run.instance.data
    assert repr(run.data) == repr({"a": 1e19, "b": 1e300, "c": 2})


# --- counting ---------------------------------------------------------------------------------------------------------


def test_size_and_depth() -> None:
    assert stored_size(b"1" * 100, 50) == 100
    assert stored_size(b"[1e-300,1e-300]", 64) > 600
    levels = b"[" * 130 + b"]" * 130
    assert (is_deep(levels, 128), is_deep(levels, 130)) == (True, False)
    assert not is_deep(b'["' + b"[" * 500 + b'"]', 128)


def test_the_record_of_many_conditions_that_read_much_is_bounded() -> None:
    """Each would store a copy of what it reads: here a hundred megabytes."""
    wanted = " || ".join(f"input.f{n} == 'y'" for n in range(8))
    ways = [edge("choose", "end", when=wanted, priority=n) for n in range(300)]
    run = Run(program([Node(id="choose", kind="condition"), end()], [*ways, edge("choose", "end", priority=999)]))
    run.start({f"f{n}": "x" * 40_000 for n in range(8)})
    closing = run.row("choose").closing
    assert run.status == "completed"
    assert closing is not None
    assert len(closing) < 250_000
    evaluated = msgspec.json.decode(closing)["evaluated"]
    assert len(evaluated) == 300
    assert evaluated[0]["variables"]["input.f7"] == {"omitted": "text", "length": 40_000}
    assert evaluated[-1]["variables"] == {}
