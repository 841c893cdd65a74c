"""`on_failure`: where it may stand and what it takes."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.definitions import Branch, Compensation, Flow
from holdfast.errors import DefinitionError


def refund(ctx: object, data: Any) -> None: ...


def told(flow: Flow) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    return [(problem.code, problem.place) for problem in refusal.value.diagnostics]


def test_it_belongs_to_the_step_before() -> None:
    built = Flow("f").step("charge", "charge").on_failure("refund", refund, retries=3).step("ship", "ship").build()
    charge, ship = built.items
    assert charge.undo == Compensation(name="refund", handler="refund", retries=3)
    assert ship.undo is None
    assert built.handlers == {"refund": refund}


def test_people_waits_and_sub_flows_can_be_undone() -> None:
    flow = Flow("f").human("sign").on_failure("unsign", "u").wait_event("paid").on_failure("repay", "u")
    built = flow.sub_flow("child", "g").on_failure("unchild", "u").build()
    assert [item.undo.name for item in built.items] == ["unsign", "repay", "unchild"]


def test_the_step_without_it_stays_as_it_was() -> None:
    plain = Flow("f").step("a", "a")
    plain.on_failure("u", "u")
    assert plain.build().items[0].undo is None


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").on_failure("u", "u").step("a", "a"),
        Flow("f").step("a", "a").save_point("here").on_failure("u", "u"),
        Flow("f").step("a", "a").condition("c", "true").on_failure("u", "u"),
        Flow("f").step("a", "a").sleep("s", 1).on_failure("u", "u"),
        Flow("f").parallel("p", ("a", "a"), ("b", "b")).on_failure("u", "u"),
        Flow("f").fork("p", Branch().step("a", "a"), Branch().step("b", "b")).join("j").on_failure("u", "u"),
        Flow("f").condition("c", "true").step("a", "a").rejoin().on_failure("u", "u"),
        Flow("f").step("a", "a").on_failure("v", "v").on_failure("u", "u"),
        Flow("f").fork("p", Branch().on_failure("u", "u").step("a", "a"), Branch().step("b", "b")),
    ],
)
def test_elsewhere_it_is_refused(flow: Flow) -> None:
    assert told(flow) == [("COMPENSATION_MISPLACED", "steps.u")]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("retries", 1.5), ("retry_delay", -1), ("max_delay", None), ("backoff", "odd"), ("jitter", 2), ("timeout", 0),
        ("idempotent", None), ("priority", 101), ("queue", ""), ("metadata", ["a"]),
    ],
)  # fmt: skip
def test_its_options_are_those_of_a_step(option: str, value: Any) -> None:
    flow = Flow("f").step("a", "a").on_failure("u", "u", **{option: value})
    assert told(flow) == [("STEP_OPTION_INVALID", f"steps.u.{option}")]


@pytest.mark.parametrize("handler", ["", None, lambda ctx, data: None])
def test_its_handler_needs_a_name(handler: Any) -> None:
    assert told(Flow("f").step("a", "a").on_failure("u", handler)) == [("HANDLER_INVALID", "steps.u.handler")]


def test_one_that_may_not_be_repeated_is_called_once() -> None:
    built = Flow("f", retries=3).step("a", "a").on_failure("u", "u", idempotent=False, retries=9).build()
    assert built.items[0].undo.retries == 1
