"""The builder: what it answers, that it never changes, and everything it refuses, all at once."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.doors.saga import Compensation, Definition, Flow, Human, Problem, Retry, Step, Undo, model
from holdfast.doors.saga.problems import REMEDIES
from holdfast.errors import DefinitionError
from holdfast.payloads import decode, encode


def reserve(ctx: object, data: Any) -> Any:
    return data


async def ship(ctx: object, data: Any) -> Any:
    return data


def another_reserve() -> Any:
    def reserve(ctx: object, data: Any) -> Any:
        return None

    return reserve


def problems_of(flow: Flow) -> list[Problem]:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    assert refusal.value.code == refusal.value.diagnostics[0].code
    assert refusal.value.hint
    return list(refusal.value.diagnostics)


def codes_of(flow: Flow) -> list[str]:
    return [problem.code for problem in problems_of(flow)]


def test_steps_keep_their_order_and_their_options() -> None:
    definition = (
        Flow("order", version=2)
        .step("reserve", "reserve", retry=Retry(attempts=3, delay=1, backoff="exponential", jitter=0.5), timeout=30)
        .step("ship", "ship", deadline=60, idempotent=False, priority=80, queue="warehouse", metadata={"team": "x"})
        .build()
    )
    assert (definition.name, definition.version) == ("order", 2)
    assert definition.items == (
        Step(
            name="reserve",
            handler="reserve",
            retries=3,
            retry_delay=1.0,
            backoff="exponential",
            jitter=0.5,
            timeout=30.0,
        ),
        Step(
            name="ship",
            handler="ship",
            deadline=60.0,
            idempotent=False,
            retries=1,
            priority=80,
            queue="warehouse",
            metadata={"team": "x"},
        ),
    )


def test_a_function_is_kept_under_its_own_name() -> None:
    definition = Flow("order").step("first", reserve).step("second", ship).step("third", "elsewhere").build()
    assert [step.handler for step in definition.items] == ["reserve", "ship", "elsewhere"]
    assert definition.handlers == {"reserve": reserve, "ship": ship}


def test_one_function_may_serve_two_steps() -> None:
    assert Flow("order").step("a", reserve).step("b", reserve).build().handlers == {"reserve": reserve}


def test_every_call_answers_a_new_flow() -> None:
    start = Flow("order").step("reserve", "reserve")
    shipped, kept = start.step("ship", ship), start.step("keep", "keep")
    assert [step.name for step in start.build().items] == ["reserve"]
    assert [step.name for step in shipped.build().items] == ["reserve", "ship"]
    assert [step.name for step in kept.build().items] == ["reserve", "keep"]
    assert kept.build().handlers == {}


def test_metadata_is_a_copy() -> None:
    tags = {"team": ["x"]}
    definition = Flow("order").step("a", "a", metadata=tags).build()
    tags["team"].append("y")
    assert definition.items[0].metadata == {"team": ["x"]}


@pytest.mark.parametrize("given", [0, -5, 1])
def test_fewer_than_one_call_means_one(given: int) -> None:
    assert Flow("order").step("a", "a", retry=Retry(attempts=given)).build().items[0].retries == 1


@pytest.mark.parametrize("given", [None, 5])
def test_what_may_not_be_repeated_is_called_once(given: int | None) -> None:
    flow = Flow("order", attempts=3).step("a", "a", idempotent=False, retry=Retry(attempts=given))
    assert flow.build().items[0].retries == 1


def test_a_step_that_says_nothing_takes_the_retries_of_the_flow() -> None:
    definition = Flow("order", attempts=4).step("a", "a").step("b", "b", retry=Retry(attempts=2)).build()
    assert (definition.retries, [step.retries for step in definition.items]) == (4, [None, 2])


def test_then_is_another_word_for_step() -> None:
    assert Flow("order").step("a", "a").then("b", "b", retry=Retry(attempts=2)).build() == (
        Flow("order").step("a", "a").step("b", "b", retry=Retry(attempts=2)).build()
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dlq", 1),
        ("dlq", None),
        ("attempts", 1.5),
        ("attempts", None),
        ("attempts", 2**31),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "1d"),
    ],
)
def test_an_option_of_the_flow_out_of_range_is_refused(option: str, value: Any) -> None:
    [problem] = problems_of(Flow("order", **{option: value}).step("a", "a"))
    assert (problem.code, problem.place) == ("FLOW_OPTION_INVALID", option)


def test_a_definition_is_frozen() -> None:
    definition = Flow("order").step("a", "a").build()
    with pytest.raises(AttributeError):
        definition.name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        definition.items[0].priority = 1  # type: ignore[misc]


def test_the_source_is_json_without_functions() -> None:
    definition = Flow("order").step("a", reserve, retry=Retry(attempts=2)).build()
    source = decode(encode(definition.source, "the source"), "the source")
    assert (source["kind"], source["name"], source["version"]) == ("saga", "order", 1)
    assert source["items"][0].items() >= {"item": "step", "name": "a", "handler": "reserve", "retries": 2}.items()
    items = msgspec.convert(source["items"], tuple[Step, ...])
    assert Definition(name="order", version=1, items=items, handlers=definition.handlers) == definition


def test_a_flow_without_steps_is_refused() -> None:
    assert codes_of(Flow("order")) == ["FLOW_EMPTY"]


@pytest.mark.parametrize("name", ["", "  ", "a@b", "a\nb", "a\u2028b", "\ud800", "x" * 201, "ü" * 101, None, 7])
def test_a_flow_needs_a_proper_name(name: Any) -> None:
    assert codes_of(Flow(name).step("a", "a")) == ["FLOW_NAME_INVALID"]


@pytest.mark.parametrize("version", [0, -1, 2**31, 1.0, True, "1", None])
def test_a_version_is_a_whole_number_from_one(version: Any) -> None:
    assert codes_of(Flow("order", version=version).step("a", "a")) == ["FLOW_VERSION_INVALID"]


@pytest.mark.parametrize(
    "name", ["", " ", "a@1", "a\x00b", "tab\t", "x" * 201, "_root_", "cond#", "cond#1", None, 3, ["a"]]
)
def test_a_step_needs_a_proper_name(name: Any) -> None:
    assert codes_of(Flow("order").step(name, "a")) == ["STEP_NAME_RESERVED"]


@pytest.mark.parametrize("name", ["end", "end#1", "a>b", "Überweisung", "a b", "root", "condition", "x" * 200])
def test_other_names_are_free(name: str) -> None:
    assert Flow("order").step(name, "a").build().items[0].name == name


def test_a_step_may_be_there_once() -> None:
    [problem] = problems_of(Flow("order").step("a", "x").step("b", "x").step("a", "y"))
    assert (problem.code, problem.place) == ("STEP_DUPLICATE", "steps.a")
    assert "'a'" in problem.message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", 0),
        ("timeout", -3),
        ("timeout", "30"),
        ("timeout", 1e12),
        ("deadline", 0),
        ("deadline", True),
        ("delay", -1),
        ("delay", None),
        ("idempotent", 1),
        ("priority", -1),
        ("priority", 101),
        ("priority", 50.0),
        ("queue", ""),
        ("queue", "a\nb"),
        ("queue", 5),
        ("metadata", ["a"]),
        ("metadata", {"at": float("nan")}),
        ("metadata", {"big": 2**60}),
        ("metadata", {"big": 2.0**53}),
        ("metadata", {1: "a"}),
        ("metadata", {"function": reserve}),
    ],
)
def test_an_option_out_of_range_names_step_and_option(option: str, value: Any) -> None:
    [problem] = problems_of(Flow("order").step("reserve", "reserve", **{option: value}))
    assert problem.code == "STEP_OPTION_INVALID"
    assert problem.place == f"steps.reserve.{option}"
    assert "'reserve'" in problem.message
    assert option in problem.message


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("attempts", 1.5),
        ("attempts", True),
        ("attempts", "3"),
        ("attempts", 2**31),
        ("delay", -1),
        ("delay", float("nan")),
        ("delay", float("inf")),
        ("max_delay", -0.1),
        ("backoff", "quadratic"),
        ("backoff", ""),
        ("backoff", ["fixed"]),
        ("jitter", 1.1),
        ("jitter", -0.1),
    ],
)
def test_a_retry_out_of_range_names_step_and_option(option: str, value: Any) -> None:
    [problem] = problems_of(Flow("order").step("reserve", "reserve", retry=Retry(**{option: value})))
    assert (problem.code, problem.place) == ("STEP_OPTION_INVALID", f"steps.reserve.retry.{option}")
    assert problem.message.startswith(f"The step 'reserve' has retry.{option} {value!r}; it must be ")


def test_a_retry_is_a_retry() -> None:
    wrong: Any = 3
    [problem] = problems_of(Flow("order").step("reserve", "reserve", retry=wrong))
    assert (problem.code, problem.place) == ("STEP_OPTION_INVALID", "steps.reserve.retry")
    assert "retry=Retry(attempts=3)" in problem.message


OLD: dict[str, str] = {
    "retries": "write retry=Retry(attempts=…).", "retry_delay": "write retry=Retry(delay=…).",
    "backoff": "write retry=Retry(backoff=…).", "max_delay": "write retry=Retry(max_delay=…).",
    "jitter": "write retry=Retry(jitter=…).", "attempts": "write retry=Retry(attempts=…).",
    "timeuot": "did you mean 'timeout'?",
}  # fmt: skip


@pytest.mark.parametrize("option", OLD)
def test_an_option_a_step_does_not_have_names_the_right_word(option: str) -> None:
    [problem] = problems_of(Flow("order").step("reserve", "reserve", **{option: 1}))  # type: ignore[arg-type]
    assert (problem.code, problem.place) == ("STEP_OPTION_INVALID", f"steps.reserve.{option}")
    assert problem.message == f"The step 'reserve' has no option {option!r}: {OLD[option]}"


def test_an_option_a_flow_does_not_have_names_the_right_word() -> None:
    old: dict[str, Any] = {"retries": 3}
    with pytest.raises(
        DefinitionError, match=r"flow 'order' cannot be built: .* no option 'retries': write attempts=…"
    ):
        Flow("order", **old).step("a", "a").build()
    with pytest.raises(DefinitionError, match="'nap' has no option 'colour'; it takes after, cron, metadata, name"):
        Flow("order").step("a", "a").sleep("nap", 1, **{"colour": 3}).build()  # type: ignore[arg-type]


def test_metadata_that_cannot_be_stored_is_told_once_and_by_its_own_path() -> None:
    nested: dict[str, Any] = {}
    for _ in range(62):
        nested = {"a": nested}
    told = [problems_of(Flow("f").step("a", "a", metadata=found))[0].message for found in ({"x": float("nan")}, nested)]
    assert told == [
        "The metadata of step 'a' cannot be stored: `x` is nan, which JSON cannot hold.",
        "The metadata of step 'a' is nested deeper than 61 levels.",
    ]


def test_functions_without_a_name_are_told_apart_from_empty_names() -> None:
    flow = Flow("f").step("a", lambda ctx, data: data).step("b", lambda ctx, data: None).step("c", "")
    nameless = "is a lambda or an object without a name that a worker could find it by."
    assert [found.message for found in problems_of(flow)] == [
        f"The handler of step 'a' {nameless}",
        f"The handler of step 'b' {nameless}",
        "The handler of step 'c' is empty.",
    ]
    parallel = Flow("f").parallel("both", reserve, lambda ctx, data: data, ("named", lambda ctx, data: data))
    assert [found.message for found in problems_of(parallel)] == [
        "Branch 2 of 'both' is a lambda or an object without a name.",
        f"The handler of step 'named' {nameless}",
    ]


@pytest.mark.parametrize("handler", ["", "a\nb", None, 5, lambda ctx, data: data, functools.partial(reserve, None)])
def test_a_handler_needs_a_name_that_another_process_can_find(handler: Any) -> None:
    assert codes_of(Flow("order").step("a", handler)) == ["HANDLER_INVALID"]


def test_two_functions_of_one_name_are_ambiguous() -> None:
    [problem] = problems_of(Flow("order").step("a", reserve).step("b", another_reserve()))
    assert problem.code == "HANDLER_AMBIGUOUS"
    assert "'reserve'" in problem.message


class Shop:
    def charge(self, ctx: object, data: Any) -> Any:
        return data

    @classmethod
    def refund(cls, ctx: object, data: Any) -> Any:
        return data


def test_a_method_may_be_named_in_several_steps() -> None:
    shop = Shop()
    flow = Flow("order").step("one", shop.charge).step("two", shop.charge).step("a", Shop.refund).step("b", Shop.refund)
    assert set(flow.build().handlers) == {"charge", "refund"}
    [problem] = problems_of(flow.step("three", Shop().charge))
    assert problem.code == "HANDLER_AMBIGUOUS"


class Odd:
    """A callable with a name of its own, and an opinion on what it equals."""

    __name__ = "odd"
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, opinion: Any) -> None:
        self.opinion = opinion

    def __call__(self, ctx: object, data: Any) -> Any:
        return data

    def __eq__(self, other: object) -> Any:
        return self.opinion()


@pytest.mark.parametrize("opinion", [lambda: True, lambda: False, lambda: 1 / 0])
def test_what_a_callable_says_it_equals_does_not_count(opinion: Any) -> None:
    odd = Odd(opinion)
    assert Flow("order").step("a", odd).step("b", odd).build().handlers["odd"] is odd
    assert codes_of(Flow("order").step("a", odd).step("b", Odd(opinion))) == ["HANDLER_AMBIGUOUS"]


def test_all_problems_are_told_together() -> None:
    flow = Flow("", version=0).step("a", "x", timeout=0, priority=200).step("a", "x").step("_root_", "")
    with pytest.raises(DefinitionError, match="7 problems in all") as refusal:
        flow.build()
    assert {problem.code for problem in refusal.value.diagnostics} == {
        "FLOW_NAME_INVALID",
        "FLOW_VERSION_INVALID",
        "STEP_DUPLICATE",
        "STEP_OPTION_INVALID",
        "STEP_NAME_RESERVED",
        "HANDLER_INVALID",
    }
    assert all(problem.hint and problem.severity == "error" for problem in refusal.value.diagnostics)


def test_the_docs_list_every_code_and_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sagas.md").read_text()
    verbs = (Flow, Flow.step, Flow.human, Flow.wait_event, Flow.sleep, Flow.sub_flow, Retry, Undo)
    options = {option for verb in verbs for option in inspect.signature(verb).parameters} - {"self", "name", "handler"}
    assert [word for word in (*REMEDIES, *sorted(options)) if f"| `{word}` |" not in page] == []


def test_the_builders_arguments_are_the_fields_of_what_they_make() -> None:
    made = {
        "step": Step, "call": model.Call, "webhook": model.Webhook, "mail": model.Mail, "human": Human,
        "wait_event": model.WaitEvent, "sleep": model.Sleep, "sub_flow": model.SubFlow,
        "condition": model.Condition, "join": model.Join, "save_point": model.SavePoint,
    }  # fmt: skip
    made = {getattr(Flow, verb): kind for verb, kind in made.items()} | {Undo: Compensation}
    loose = {"retries", "retry_delay", "max_delay", "backoff", "jitter"}  # stored one by one, written as one Retry
    for make, kind in made.items():
        arguments = set(inspect.signature(make).parameters) - {"self"}
        fields = set(kind.__struct_fields__)
        assert arguments == (fields - loose | {"retry"} if loose < fields else fields), make
    assert len(inspect.signature(Retry).parameters) == len(loose)
