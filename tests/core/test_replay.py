"""Replay: rows in, instance out. That it equals the live one is checked after every decision of every other test."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from core_graphs import chain, edge, end, join, line, program, split, state, task, terminal, timer
from core_run import Run, new_instance, projection

from holdfast.core.decide import decide
from holdfast.core.model.decision import Facts
from holdfast.core.model.signals import Cancel, Resume, Signal, Suspend
from holdfast.core.model.state import Instance
from holdfast.core.replay.replay import StepRow, replay
from holdfast.graph.model import Policy, Retry, Wait

REVIEWS = program(
    [task("draft"), split("fork"), state("a"), timer("b", 60), join("meet"), task("last"), end(), terminal()],
    [
        edge("draft", "fork"), edge("fork", "a"), edge("fork", "b"), edge("a", "meet", "yes"), edge("a", "draft", "no"),
        edge("a", "terminal", "drop"), edge("b", "meet"), *chain("meet", "last", "end"),
    ],
    Policy(timeout=900),
)  # fmt: skip


def _replayed(run: Run, rows: list[StepRow] | None = None) -> Instance:
    found = list(run.table.rows.values()) if rows is None else rows
    return replay(run.program, found, instance=new_instance(run.program))


def test_the_order_of_the_rows_does_not_matter() -> None:
    run = Run(REVIEWS).start({"n": 1}).done("draft").event("no").done("draft").fire("b", "timer")
    rows = list(run.table.rows.values())
    for seed in range(10):
        Random(seed).shuffle(rows)
        assert projection(_replayed(run, rows)) == projection(run.instance)


def test_values_may_come_back_from_the_database_in_another_spelling() -> None:
    run = Run(REVIEWS).start({"b": 1, "a": [1, 2]}).done("draft", {"z": 1, "y": {"k": None}}).fire("b", "timer")
    spelled = [_respelled(row) for row in run.table.rows.values()]
    assert projection(_replayed(run, spelled)) == projection(run.instance)


def _respelled(row: StepRow) -> StepRow:
    json = ("input", "output", "error", "detail", "closing", "chosen_edge_ids")
    held = {name: getattr(row, name) for name in json if getattr(row, name) is not None}
    spelled = {
        n: msgspec.json.format(msgspec.json.encode(msgspec.json.decode(v), order="sorted")) for n, v in held.items()
    }
    return msgspec.structs.replace(row, **spelled)


def test_no_rows_is_an_instance_that_has_not_started() -> None:
    run = Run(REVIEWS)
    assert projection(_replayed(run, [])) == projection(msgspec.structs.replace(run.instance, data=b"{}"))


@pytest.mark.parametrize("signal", [Cancel("stop"), Suspend("AUDIT")])
def test_a_rebuilt_instance_decides_like_the_live_one(signal: Signal) -> None:
    run = Run(REVIEWS).start({"n": 1}).done("draft", {"m": 2}).fire("b", "timer")
    rebuilt = msgspec.structs.replace(_replayed(run), version=run.instance.version)
    live = decide(run.program, run.instance, signal, Facts(run.now))
    again = decide(run.program, rebuilt, signal, Facts(run.now))
    assert projection(again.instance) == projection(live.instance)
    assert again.opened == live.opened


def test_a_rebuilt_dead_token_runs_again_with_its_value() -> None:
    run = Run(line(task("a"), task("b", input={"n": "input.n"}), policy=Policy(on_error="suspend"))).start()
    run.done("a", {"n": 7, "m": 8}).fail("b")
    rebuilt = msgspec.structs.replace(_replayed(run), version=run.instance.version)
    decision = decide(run.program, rebuilt, Resume(), Facts(run.now))
    assert decision.dispatches[0].input == b'{"n":7}'


def test_a_waiting_retry_is_rebuilt_from_the_row() -> None:
    run = Run(line(task("a", retry=Retry(calls=3, delay=30)))).start().fail("a")
    assert _replayed(run).state.tokens["0"].waits == run.tokens["0"].waits
    run.fire("a", "retry")
    assert _replayed(run).state.tokens["0"].waits == ()


def test_fences_and_calls_come_from_the_rows() -> None:
    run = Run(line(task("a", retry=Retry(calls=3)), state("ask", wait=Wait(event="go")))).start().fail("a")
    token = _replayed(run).state.tokens["0"]
    assert (token.fence, token.calls, token.at) == (2, 2, run.now)
