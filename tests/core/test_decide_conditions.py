"""Which edge is taken, and what is recorded about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from core_graphs import chain, condition, edge, end, join, program, split, task
from core_run import Run

from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor
from holdfast.graph.model import Node, Policy


def _sizes(policy: Policy | None = None, **default: Any) -> Program:
    return program(
        [condition("size"), task("big"), task("medium"), task("small"), end()],
        [
            edge("size", "big", when="input.amount > 100", priority=1),
            edge("size", "medium", when="input.amount > 10", priority=2),
            edge("size", "small", **{"priority": 3, **default}),
            edge("big", "end"),
            edge("medium", "end"),
            edge("small", "end"),
        ],
        policy,
    )


@pytest.mark.parametrize(("amount", "taken"), [(1000, "big"), (50, "medium"), (5, "small")])
def test_the_first_edge_by_priority_whose_condition_holds(amount: int, taken: str) -> None:
    assert Run(_sizes()).start({"amount": amount}).nodes == [taken]


def test_a_default_edge_is_for_when_no_other_holds_wherever_it_stands() -> None:
    assert Run(_sizes(priority=0)).start({"amount": 1000}).nodes == ["big"]


def test_conditions_know_the_organisation() -> None:
    ours = program(
        [condition("ours"), task("yes"), task("no"), end()],
        [
            edge("ours", "yes", when="org.id == 'acme'"),
            edge("ours", "no", priority=1),
            edge("yes", "end"),
            edge("no", "end"),
        ],
        variables={"org.id": "string"},
    )
    assert Run(ours).start({}).nodes == ["yes"]


def test_the_choice_and_every_evaluation_are_recorded() -> None:
    run = Run(_sizes()).start({"amount": 50})
    assert run.chosen("size") == ["size-completed-medium?2"]
    record = msgspec.json.decode(run.row("size").closing or b"")
    assert record["evaluated"] == [
        {
            "expression": "input.amount > 100",
            "variables": {"input.amount": 50},
            "result": False,
            "chosen_edge_ids": [],
        },
        {
            "expression": "input.amount > 10",
            "variables": {"input.amount": 50},
            "result": True,
            "chosen_edge_ids": ["size-completed-medium?2"],
        },
    ]


def test_a_missing_path_is_null_and_null_is_not_ordered() -> None:
    assert Run(_sizes()).start({}).nodes == ["small"]


@pytest.mark.parametrize(("missing", "taken"), [("null", "other"), ("zero", "cheap")])
def test_in_sagas_a_missing_number_reads_zero(missing: str, taken: str) -> None:
    graph = program(
        [condition("c"), task("cheap"), task("other"), end()],
        [
            edge("c", "cheap", when="input.amount < 10"),
            edge("c", "other", priority=1),
            edge("cheap", "end"),
            edge("other", "end"),
        ],
        Policy(missing=missing),
    )
    assert Run(graph).start({}).nodes == [taken]


def _guarded(**policy: Any) -> Program:
    return program(
        [condition("gate"), task("vip"), task("trouble"), end()],
        [
            edge("gate", "vip", guard="vip.enter"),
            edge("gate", "trouble", "error"),
            edge("vip", "end"),
            edge("trouble", "end"),
        ],
        Policy(**policy),
    )


def test_without_an_edge_that_holds_a_node_fails_and_takes_its_error_edge() -> None:
    run = Run(_guarded()).start({"n": 1})
    assert run.nodes == ["trouble"]
    assert run.input("trouble") == {"n": 1}
    assert (run.row("gate").status, run.chosen("gate")) == ("failed", ["gate-error-trouble"])


def test_without_any_way_out_the_instance_fails() -> None:
    graph = program([condition("gate"), end()], [edge("gate", "end", guard="vip.enter")])
    run = Run(graph).start()
    assert (run.status, run.instance.reason, run.chosen("gate")) == ("failed", "NO_EDGE_MATCHED", [])


def test_a_guard_asks_the_actor_of_the_signal() -> None:
    graph = program([task("a"), condition("gate"), end()], [edge("a", "gate"), edge("gate", "end", guard="vip.enter")])
    run = Run(graph).start()
    from holdfast.core.model.signals import WorkDone

    token = run.at("a")[1]
    run.apply(WorkDone("0", token.step, token.fence, b"{}"), Actor("ada", ("vip.enter",)))
    assert run.status == "completed"


@pytest.mark.parametrize("opening", [condition, split])
def test_the_record_names_no_edge_that_its_guard_kept_from_being_taken(opening: Callable[[str], Node]) -> None:
    graph = program(
        [opening("gate"), task("vip"), task("other"), task("third"), end()],
        [
            edge("gate", "vip", when="input.n > 1", guard="vip.enter"),
            edge("gate", "other", when="input.n > 2", priority=1),
            edge("gate", "third", priority=2),
            *chain("vip", "end"), *chain("other", "end"), *chain("third", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start({"n": 3})
    taken = run.chosen("gate")
    record = msgspec.json.decode(run.row("gate").closing or b"")
    assert [found["result"] for found in record["evaluated"]] == [True, True]
    named = [id for found in record["evaluated"] for id in found["chosen_edge_ids"]]
    assert named == taken[:1] == ["gate-completed-other?1"]


def test_only_a_split_fans_out_and_its_conditions_choose_the_branches() -> None:
    graph = program(
        [split("s"), task("a"), task("b"), task("c"), join("j"), end()],
        [
            edge("s", "a", when="input.n > 1"),
            edge("s", "b", when="input.n > 2"),
            edge("s", "c"),
            *chain("a", "j"), *chain("b", "j"), *chain("c", "j"), *chain("j", "end"),
        ],
    )  # fmt: skip
    run = Run(graph).start({"n": 2})
    assert run.nodes == ["a", "c"]
    assert run.done("a").done("c").status == "completed"
