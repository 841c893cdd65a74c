"""A flow printed as builder code builds the same flow again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_flows import flows

from holdfast.doors.layout import WIDTH
from holdfast.doors.saga import Branch, Definition, Flow, Retry, Undo
from holdfast.doors.saga.model import Step
from holdfast.doors.saga.printing import code_of
from holdfast.doors.saga.source import read_source
from holdfast.errors import DefinitionError
from holdfast.payloads import decode, encode

ORDER = (
    Flow("order", version=2, dlq=True, attempts=3, timeout=3600)
    .step(
        "reserve",
        "reserve",
        undo=Undo("release", retry=Retry(attempts=2)),
        retry=Retry(attempts=3, delay=0.5),
        metadata={"team": "stock", "tags": ["a", 1, None]},
    )
    .save_point("reserved")
    .condition("big", "input.amount > 100", otherwise=Branch().step("small", "small").rejoin())
    .fork(
        "fulfil",
        Branch().step("ship", "ship", undo="unship", queue="warehouse", timeout=20),
        Branch().condition("paid", 'input.state == "paid"').step("bill", "send_bill"),
    )
    .join("fulfilled", "any")
    .parallel("tell", ("customer", "mail"), ("boss", "mail"))
    .human("approve", roles=["boss"], due=60)
    .wait_event("packed")
    .wait_event("parcel", "arrived", key="input.parcel", early=True)
    .sleep("cool off", 60)
    .sub_flow("next", "billing", 3, input={"id": "input.id"})
    .build()
)

CODE = """\
from holdfast import Branch, Flow, Retry, Undo

flow = (
    Flow("order", version=2, dlq=True, attempts=3, timeout=3600)
    .step(
        "reserve",
        "reserve",
        undo=Undo("release", retry=Retry(attempts=2)),
        retry=Retry(attempts=3, delay=0.5),
        metadata={"tags": ["a", 1, None], "team": "stock"},
    )
    .save_point("reserved")
    .condition("big", "input.amount > 100", otherwise=Branch().step("small", "small").rejoin())
    .fork(
        "fulfil",
        Branch().step("ship", "ship", undo="unship", timeout=20, queue="warehouse"),
        Branch().condition("paid", "input.state == \\\\"paid\\\\"").step("bill", "send_bill"),
    )
    .join("fulfilled", "any")
    .parallel("tell", Branch().step("customer", "mail"), Branch().step("boss", "mail"))
    .human("approve", roles=["boss"], due=60)
    .wait_event("packed")
    .wait_event("parcel", "arrived", key="input.parcel", early=True)
    .sleep("cool off", seconds=60)
    .sub_flow("next", "billing", version=3, input={"id": "input.id"})
    .build()
)
""".replace("\\\\", "\\")


def built_by(code: str) -> Definition:
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return namespace["flow"]


def test_it_reads_as_it_was_written() -> None:
    assert code_of(ORDER.source) == CODE
    assert built_by(CODE) == ORDER


@settings(deadline=None, max_examples=60)
@given(flows())
def test_the_code_of_any_flow_builds_it_again(flow: Flow) -> None:
    definition = flow.build()
    stored = decode(encode(definition.source, "the source"), "the source")
    assert built_by(code_of(stored)) == definition


NAMES = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="@"), min_size=1, max_size=9
)
JSON = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(-1e30, 1e30) | st.text(max_size=20),
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@given(
    NAMES.filter(lambda name: name.strip() and not name.startswith(("cond#", "_root_"))), JSON, st.floats(0.001, 1e9)
)
def test_every_text_and_number_comes_back(name: str, metadata: dict[str, Any], seconds: float) -> None:
    try:
        definition = Flow(name).step(name, name, timeout=seconds, metadata=metadata).human("#", form=metadata).build()
    except DefinitionError:
        return
    assert built_by(code_of(definition)) == definition


def test_a_flow_without_branches_imports_none() -> None:
    assert code_of(Flow("f").step("a", "a").condition("c", "true").step("b", "b").build()).startswith(
        "from holdfast import Flow\n"
    )


def test_a_flow_imports_what_it_uses() -> None:
    first = [
        code_of(flow.build()).partition("\n")[0]
        for flow in (
            Flow("f").step("a", "a", undo="u"),
            Flow("f").step("a", "a", undo=Undo("u", name="v")),
            Flow("f").step("a", "a", undo=Undo("u", retry=Retry(delay=1))),
            Flow("f").fork("f", Branch().step("a", "a", retry=Retry(jitter=1)), Branch().step("b", "b")),
        )
    ]
    assert first == [
        "from holdfast import Flow",
        "from holdfast import Flow, Undo",
        "from holdfast import Flow, Retry, Undo",
        "from holdfast import Branch, Flow, Retry",
    ]


def test_functions_are_printed_by_their_names() -> None:
    def reserve(ctx: object, data: Any) -> Any:
        return data

    assert '.step("a", "reserve")' in code_of(Flow("f").step("a", reserve).build())


def test_long_lines_are_broken() -> None:
    flow = Flow("f").step("a", "b", metadata={f"key {n}": ["some text"] * 4 for n in range(6)}).build()
    code = code_of(flow)
    assert max(map(len, code.splitlines())) <= WIDTH
    assert built_by(code) == flow


# --- sources ------------------------------------------------------------------------------------------------------


def test_a_source_holds_everything() -> None:
    stored = decode(encode(ORDER.source, "the source"), "the source")
    assert read_source(stored) == ORDER


@settings(deadline=None, max_examples=60)
@given(flows())
def test_any_source_is_read_back(flow: Flow) -> None:
    definition = flow.build()
    assert read_source(decode(encode(definition.source, "s"), "s")) == definition


def test_a_source_of_steps_and_people_alone_is_read_as_before() -> None:
    old = {
        "kind": "saga", "name": "order", "version": 1,
        "items": [
            {
                "item": "step", "name": "a", "handler": "h", "retries": 2, "retry_delay": 0.0, "max_delay": 3600.0,
                "backoff": "fixed", "jitter": 0.0, "timeout": None, "deadline": None, "idempotent": True,
                "priority": 50, "queue": None, "metadata": {},
            },
            {"item": "human", "name": "b", "form": None, "roles": ["x"], "due": None, "priority": 50, "metadata": {}},
        ],
    }  # fmt: skip
    definition = read_source(old)
    assert definition.items[0] == Step(name="a", handler="h", retries=2)
    assert definition == Flow("order").step("a", "h", retry=Retry(attempts=2)).human("b", roles=["x"]).build()


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"name": "f", "entry": "a", "nodes": []},
        {"kind": "saga", "name": "f", "version": 1, "items": [{"item": "poem"}]},
        {"kind": "saga", "name": "f", "items": []},
        {"kind": "machine", "name": "f", "version": 1, "items": []},
    ],
)
def test_what_the_builder_did_not_write_is_refused(source: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError) as refusal:
        code_of(source)
    assert refusal.value.code == "SOURCE_UNREADABLE"
