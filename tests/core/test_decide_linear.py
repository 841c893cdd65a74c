"""One token, one line: what starts, what moves, what is written, and what is refused."""

from __future__ import annotations

import pytest
from core_graphs import chain, edge, end, line, program, start, state, task
from core_run import ID, Run, new_instance

from holdfast.core.decide import decide
from holdfast.core.model.decision import Facts
from holdfast.core.model.ids import receipt_key
from holdfast.core.model.signals import Cancel, EventArrived, Failure, Resume, Started, WorkDone, WorkFailed
from holdfast.errors import Conflict, Refused
from holdfast.graph.model import Node, Policy

TWO = line(task("reserve"), task("ship"))


def test_a_start_dispatches_the_first_step_with_the_input() -> None:
    run = Run(TWO).start({"amount": 5})
    [dispatch] = run.last.dispatches
    assert (dispatch.node, dispatch.queue, dispatch.input, dispatch.fence, dispatch.held) == (
        "reserve", "reserve", b'{"amount":5}', 1, 0,
    )  # fmt: skip
    assert (run.status, run.row("reserve").cause) == ("running", "started")


def test_an_output_replaces_the_value_and_the_last_one_is_the_result() -> None:
    run = Run(TWO).start({"amount": 5}).done("reserve", {"reserved": True})
    assert run.input("ship") == {"reserved": True}
    run.done("ship", {"parcel": 7})
    assert (run.status, run.data, run.tokens) == ("completed", {"parcel": 7}, {})


def test_outputs_merge_into_the_context_where_the_front_door_says_so() -> None:
    steps = line(task("a"), task("b"), task("c"), policy=Policy(data="context"))
    run = Run(steps).start({"x": 1, "y": 1}).done("a", {"y": 2})
    assert run.input("b") == {"x": 1, "y": 2}
    run.done("b", [1, 2])  # no object: nothing to merge
    assert run.input("c") == {"x": 1, "y": 2}
    assert run.done("c", {"z": 3}).data == {"x": 1, "y": 2, "z": 3}


def test_a_mapping_makes_the_input() -> None:
    mapped = task("b", input={"total": "input.amount", "who": "context.name", "kind": "'gift'"})
    run = Run(line(task("a"), mapped)).start({"name": "Ada"}).done("a", {"amount": 3})
    assert run.input("b") == {"total": 3, "who": "Ada", "kind": "gift"}


def test_a_mapped_first_step_still_remembers_what_the_instance_started_with() -> None:
    run = Run(line(task("a", input={"n": "input.n"}))).start({"n": 1, "m": 2})
    assert run.input("a") == {"n": 1}
    assert run.done("a", {"out": 1}).status == "completed"


def test_a_script_computes_and_passes_on_without_waiting() -> None:
    script = Node(id="s", kind="script", input={"double": "input.n", "fixed": "1"})
    run = Run(line(script, task("a"))).start({"n": 4})
    assert run.input("a") == {"double": 4, "fixed": 1}
    assert run.row("s").is_at_once


def test_the_commit_that_closes_a_step_hands_the_work_row_to_the_next() -> None:
    run = Run(TWO).start().done("reserve")
    [dispatch] = run.last.dispatches
    assert (dispatch.held, dispatch.fence, run.last.released) == (1, 2, [])


def test_fences_live_as_long_as_the_token() -> None:
    run = Run(line(task("a"), Node(id="nap", kind="wait_timer", delay=1), task("b"))).start().done("a")
    assert [(r.path, r.fence) for r in run.last.released] == [("0", 1)]
    run.fire("nap", "timer")
    assert run.last.dispatches[0].fence == 2


def test_every_move_is_a_hop_and_laps_differ_by_hop() -> None:
    loop = program(
        [task("a"), state("ask"), end()],
        [edge("a", "ask"), edge("ask", "a", "again"), edge("ask", "end", "enough")],
    )
    run = Run(loop).start().done("a").event("again").done("a").event("again").done("a").event("enough")
    assert [row.hop for row in run.rows("a")] == [0, 2, 4]
    assert run.status == "completed"


def test_the_receipt_key_names_the_visit() -> None:
    run = Run(TWO).start()
    [opened] = run.last.opened
    assert opened.key == receipt_key(ID, b"reserve", "0@0", 0, "forward", 0)
    assert opened.id[15] == ID[15]


def test_a_pass_node_records_the_edge_it_took() -> None:
    run = Run(line(start(), task("a"))).start()
    assert run.chosen("start") == ["start-completed-a"]
    assert run.done("a").chosen("a") == ["a-completed-end"]


def test_no_extra_rows_on_the_plain_path() -> None:
    run = Run(TWO).start().done("reserve").done("ship")
    assert [row.node for row in run.table.rows.values()] == ["reserve", "ship", "end"]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_result_of_another_step_is_stale() -> None:
    run = Run(TWO).start()
    first = run.at("reserve")[1]
    run.done("reserve")
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(WorkDone("0", first.step, 9, b"{}"))


def test_a_result_under_an_old_fence_is_stale() -> None:
    run = Run(TWO).start()
    token = run.at("reserve")[1]
    with pytest.raises(Refused, match="STALE_RESULT"):
        run.apply(WorkDone("0", token.step, token.fence - 1, b"{}"))


def test_a_start_happens_once() -> None:
    run = Run(TWO).start()
    with pytest.raises(Refused, match="ALREADY_STARTED"):
        run.apply(Started(b"{}"))


def test_nothing_but_a_start_reaches_a_pending_instance() -> None:
    with pytest.raises(Conflict, match="INSTANCE_PENDING"):
        decide(TWO, new_instance(TWO), Cancel(), Facts(1))


@pytest.mark.parametrize("signal", [Cancel(), Resume(), EventArrived(b"1", "x"), WorkDone("0", b"", 1, b"{}")])
def test_a_finished_instance_takes_nothing(signal: object) -> None:
    run = Run(TWO).start().done("reserve").done("ship")
    with pytest.raises(Conflict, match="INSTANCE_OVER"):
        run.apply(signal)


def test_a_version_that_does_not_match_is_a_conflict() -> None:
    run = Run(TWO).start()
    with pytest.raises(Conflict, match="VERSION_CONFLICT"):
        run.apply(Cancel(if_version=7))
    assert run.apply(Cancel(if_version=1)).instance.version == 2


def test_a_refused_signal_leaves_everything_as_it_was() -> None:
    run = Run(TWO).start()
    before = run.instance
    with pytest.raises(Refused):
        run.apply(WorkFailed("0/3.1", b"x", 1, Failure("X", "x"), 1))
    assert run.instance is before


def test_chain_limit_stops_a_runaway_before_the_step_too_many() -> None:
    steps = line(*(task(f"s{i}") for i in range(5)), policy=Policy(data="context", chain_limit=3))
    run = Run(steps).start()
    for i in range(3):
        run.done(f"s{i}", {f"s{i}": True})
    assert (run.status, run.instance.reason) == ("suspended", "WORKFLOW_CHAIN_LIMIT")
    assert run.tokens["0"].phase == "held"
    run.apply(Resume())
    assert run.nodes == ["s3"]
    assert run.done("s3").done("s4").status == "completed"


def test_an_event_begins_a_new_chain() -> None:
    steps = program(
        [task("a"), state("ask"), task("b"), task("c"), end()],
        [edge("a", "ask"), edge("ask", "b", "go"), *chain("b", "c", "end")],
        Policy(data="context", chain_limit=2),
    )
    run = Run(steps).start().done("a").event("go").done("b")
    assert (run.status, run.instance.state.chain) == ("running", 2)
