"""`undo=`: what takes it, and what it takes."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doors.saga import Branch, Compensation, Flow, Retry, Undo
from holdfast.errors import DefinitionError


def refund(ctx: object, data: Any) -> None: ...


def told(flow: Flow) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    return [(problem.code, problem.place) for problem in refusal.value.diagnostics]


def test_it_belongs_to_the_step_before() -> None:
    built = Flow("f").step("charge", "charge", undo=Undo(refund, retry=Retry(attempts=3))).step("ship", "ship").build()
    charge, ship = built.items
    assert charge.undo == Compensation(name="refund", handler="refund", retries=3)
    assert ship.undo is None
    assert built.handlers == {"refund": refund}


def test_people_waits_and_sub_flows_can_be_undone() -> None:
    flow = Flow("f").human("sign", undo=Undo("u", name="unsign")).wait_event("paid", undo=Undo("u", name="repay"))
    built = flow.sub_flow("child", "g", undo=Undo("u", name="unchild")).build()
    assert [item.undo.name for item in built.items] == ["unsign", "repay", "unchild"]


def test_it_is_named_like_its_handler_unless_told_otherwise() -> None:
    written = [refund, "payments.refund", Undo(refund), Undo(refund, name="back")]
    undos = [Flow("f").step("a", "a", undo=undo).build().items[0].undo for undo in written]
    assert [(undo.name, undo.handler) for undo in undos] == [
        ("refund", "refund"), ("payments.refund", "payments.refund"), ("refund", "refund"), ("back", "refund"),
    ]  # fmt: skip


def test_values_are_reusable_and_frozen() -> None:
    often = Retry(attempts=5, delay=1)
    undo = Undo(refund, retry=often)
    first, second = (Flow("f").step("a", "a", undo=undo, retry=often).build().items[0] for _ in range(2))
    assert first == second
    assert (first.retries, first.undo.retries, first.undo.retry_delay) == (5, 5, 1.0)
    with pytest.raises(AttributeError):
        often.attempts = 6  # type: ignore[misc]
    with pytest.raises(AttributeError):
        undo.name = "other"  # type: ignore[misc]


def test_two_compensations_of_one_handler_need_names_of_their_own() -> None:
    flow = Flow("f").step("a", "a", undo=refund).step("b", "b", undo=refund)
    assert told(flow) == [("STEP_DUPLICATE", "steps.b.undo")]
    with pytest.raises(DefinitionError, match=r"compensation 'refund' of step 'b'.*undo=Undo\(…, name=…\)"):
        flow.build()


MISPLACED: dict[str, Any] = {"undo": "u"}


@pytest.mark.parametrize(
    "flow",
    [
        Flow("f").step("a", "a").save_point("here", **MISPLACED),
        Flow("f").step("a", "a").condition("here", "true", **MISPLACED),
        Flow("f").step("a", "a").sleep("here", 1, **MISPLACED),
        Flow("f").parallel("here", ("a", "a"), ("b", "b"), **MISPLACED),
        Flow("f").fork("p", Branch().step("a", "a"), Branch().step("b", "b")).join("here", **MISPLACED),
        Flow("f").fork("p", Branch().step("a", "a").sleep("here", 1, **MISPLACED), Branch().step("b", "b")).join("j"),
    ],
)
def test_what_cannot_be_undone_takes_none(flow: Flow) -> None:
    assert ("COMPENSATION_MISPLACED", "steps.here.undo") in told(flow)


@pytest.mark.parametrize("undo", [5, [refund, "u"], Undo(Undo(refund)), Retry(attempts=2)])  # type: ignore[arg-type]
def test_a_step_has_one_compensation_of_the_right_type(undo: Any) -> None:
    assert told(Flow("f").step("a", "a", undo=undo)) == [("STEP_OPTION_INVALID", "steps.a.undo")]


def test_the_old_verb_is_explained() -> None:
    flow: Any = Flow("order").step("charge", "charge")
    with pytest.raises(AttributeError, match=r"flow 'order' has no on_failure\(\).*step 'charge'.*undo=Undo"):
        flow.on_failure("refund", refund)
    assert not hasattr(flow, "something_else")


@pytest.mark.parametrize(
    ("option", "value"),
    [("timeout", 0), ("idempotent", None), ("priority", 101), ("queue", ""), ("metadata", ["a"])],
)
def test_its_options_are_those_of_a_step(option: str, value: Any) -> None:
    flow = Flow("f").step("a", "a", undo=Undo("u", **{option: value}))
    assert told(flow) == [("STEP_OPTION_INVALID", f"steps.a.undo.{option}")]


@pytest.mark.parametrize(
    ("option", "value"), [("attempts", 1.5), ("delay", -1), ("max_delay", -1), ("backoff", "odd"), ("jitter", 2)]
)
def test_so_is_its_retry(option: str, value: Any) -> None:
    flow = Flow("f").step("a", "a", undo=Undo("u", retry=Retry(**{option: value})))
    assert told(flow) == [("STEP_OPTION_INVALID", f"steps.a.undo.retry.{option}")]
    unfit: Any = {option: value}
    assert told(Flow("f").step("a", "a", undo=Undo("u", retry=unfit))) == [
        ("STEP_OPTION_INVALID", "steps.a.undo.retry")
    ]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Undo("u", **{"retries": 3}), r"Undo\(\) has no option 'retries': write retry=Retry\(attempts=…\)"),
        (lambda: Undo("u", **{"deadline": 3}), r"Undo\(\) has no option 'deadline'; it takes handler, idempotent"),
        (lambda: Retry(**{"retries": 3}), r"Retry\(\) has no option 'retries': write attempts=…"),
        (lambda: Retry(**{"retry_delay": 3}), r"Retry\(\) has no option 'retry_delay': write delay=…"),
        (lambda: Retry(**{"attemps": 3}), r"Retry\(\) has no option 'attemps': did you mean 'attempts'\?"),
    ],
)
def test_unknown_options_of_the_values_name_the_right_word(make: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        make()


@pytest.mark.parametrize("handler", ["", None, lambda ctx, data: None])
@pytest.mark.parametrize("name", ["u", None])
def test_its_handler_needs_a_name(handler: Any, name: str | None) -> None:
    flow = Flow("f").step("a", "a", undo=Undo(handler, name=name))
    assert told(flow) == [("HANDLER_INVALID", "steps.a.undo.handler")]


def test_one_that_may_not_be_repeated_is_called_once() -> None:
    built = Flow("f", attempts=3).step("a", "a", undo=Undo("u", idempotent=False, retry=Retry(attempts=9))).build()
    assert built.items[0].undo.retries == 1
