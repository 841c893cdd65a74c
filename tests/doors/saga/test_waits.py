"""`wait_event`, `sleep` and `sub_flow`: what they take and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doors.saga import Flow, model
from holdfast.errors import DefinitionError


def told(flow: Flow) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as refusal:
        flow.build()
    return [(problem.code, problem.place) for problem in refusal.value.diagnostics]


def test_an_event_is_called_like_its_step() -> None:
    built = Flow("f").wait_event("paid").wait_event("packed", "parcel", key="input.id", early=True, deadline=9).build()
    assert built.items == (
        model.WaitEvent(name="paid", event="paid"),
        model.WaitEvent(name="packed", event="parcel", key="input.id", early=True, deadline=9.0),
    )


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"event": ""}, "event"), ({"event": "completed"}, "event"), ({"event": "timeout"}, "event"),
        ({"event": 5}, "event"), ({"key": ""}, "key"), ({"key": 5}, "key"), ({"early": 1}, "early"),
        ({"deadline": 0}, "deadline"), ({"metadata": 5}, "metadata"),
    ],
)  # fmt: skip
def test_what_an_event_refuses(options: dict[str, Any], option: str) -> None:
    assert told(Flow("f").wait_event("w", **options)) == [("STEP_OPTION_INVALID", f"steps.w.{option}")]


def test_a_sleep_says_one_thing() -> None:
    flow = Flow("f").sleep("a", 0).sleep("b", after="input.s").sleep("c", until="input.at", timezone="UTC")
    assert flow.sleep("d", cron="* * * * *").build().items == (
        model.Sleep(name="a", seconds=0.0),
        model.Sleep(name="b", after="input.s"),
        model.Sleep(name="c", until="input.at", timezone="UTC"),
        model.Sleep(name="d", cron="* * * * *"),
    )


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "seconds"), ({"seconds": 1, "cron": "* * * * *"}, "seconds"), ({"after": "a", "until": "b"}, "seconds"),
        ({"seconds": -1}, "seconds"), ({"seconds": "5"}, "seconds"), ({"after": ""}, "after"), ({"until": 5}, "until"),
        ({"cron": ""}, "cron"), ({"cron": "* * * * *", "timezone": ""}, "timezone"),
        ({"seconds": 1, "timezone": "UTC"}, "timezone"), ({"after": "input.s", "timezone": "UTC"}, "timezone"),
    ],
)  # fmt: skip
def test_what_a_sleep_refuses(options: dict[str, Any], option: str) -> None:
    assert told(Flow("f").sleep("s", **options)) == [("STEP_OPTION_INVALID", f"steps.s.{option}")]


def test_a_sub_flow_names_a_flow() -> None:
    built = Flow("f").sub_flow("a", "g").sub_flow("b", "g", 2, input={"id": "input.id"}, deadline=5).build()
    assert built.items == (
        model.SubFlow(name="a", flow="g"),
        model.SubFlow(name="b", flow="g", version=2, input={"id": "input.id"}, deadline=5.0),
    )


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"flow": ""}, "flow"), ({"flow": "a@b"}, "flow"), ({"flow": None}, "flow"), ({"version": 0}, "version"),
        ({"version": "1"}, "version"), ({"input": {"a": 5}}, "input"), ({"input": {5: "a"}}, "input"),
        ({"input": ["a"]}, "input"), ({"input": {"a": ""}}, "input"), ({"deadline": -1}, "deadline"),
    ],
)  # fmt: skip
def test_what_a_sub_flow_refuses(options: dict[str, Any], option: str) -> None:
    assert told(Flow("f").sub_flow("s", **{"flow": "g", **options})) == [("STEP_OPTION_INVALID", f"steps.s.{option}")]
