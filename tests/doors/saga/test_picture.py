"""Definitions as trees of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from random_flows import flows

from holdfast.doors.printed import picture_of
from holdfast.doors.saga import Branch, Flow
from holdfast.doors.saga.lowering import lower
from holdfast.graph.model import dump_graph

ORDER = (
    Flow("order", version=3)
    .step("reserve", "reserve", undo="release")
    .save_point("reserved")
    .condition("big", "input.amount > 100", otherwise=Branch().step("small", "pack"))
    .fork(
        "fulfil",
        Branch().step("ship", "ship", undo="unship"),
        Branch()
        .condition("digital", "input.digital", otherwise=Branch().step("print", "print").rejoin())
        .step("bill", "x"),
        Branch().condition("gift", "input.gift").step("wrap", "wrap"),
    )
    .join("fulfilled", "all")
    .parallel("tell", ("mail", "mail"), ("call", "call"))
    .human("approve", roles=["boss", "clerk"])
    .human("look")
    .condition("late", "input.late")
    .wait_event("paid", key="input.id")
    .rejoin()
    .sleep("a", 1.5)
    .sleep("b", until="input.at")
    .sleep("c", after="input.s")
    .sleep("d", cron="0 9 * * *")
    .sub_flow("child", "billing", 2)
    .build()
)

PICTURE = """\
order version 3
├─ reserve             completed    step
│  └─ ↩ release        rolled back  undoes it
├─ reserved                         save point
├─ big                              if input.amount > 100
│  └─ otherwise                     ends this way
│     └─ small                      step, handler pack
├─ fulfil                           fork of 3
│  ├─ ship                          step
│  │  └─ ↩ unship                   undoes it
│  ├─ branch 2
│  │  ├─ digital                    if input.digital
│  │  │  └─ otherwise               comes back
│  │  │     ├─ print                step
│  │  │     └─ rejoin               back to the path of digital
│  │  └─ bill                       step, handler x
│  └─ branch 3
│     ├─ gift                       if input.gift
│     │  └─ otherwise               ends this way
│     └─ wrap                       step
├─ fulfilled                        join of all: ship, bill, cond#gift
├─ tell                             parallel of 2
│  ├─ mail                          step
│  └─ call                          step
├─ tell#join           waiting      join of all: mail, call
├─ approve                          person, boss or clerk
├─ look                             person
├─ late                             if input.late
│  └─ otherwise                     comes back at the rejoin
├─ paid                             event paid by input.id
├─ rejoin                           both ways of late go on here
├─ a                                sleep 1.5 s
├─ b                                sleep until input.at
├─ c                                sleep for input.s
├─ d                                sleep until cron 0 9 * * *
└─ child                            flow billing version 2
"""


def test_a_flow_is_drawn_with_a_mark_beside_each_step() -> None:
    marks = {"reserve": "completed", "release": "rolled back", "tell#join": "waiting", "nobody": "lost"}
    assert picture_of(ORDER, marks) == picture_of(ORDER.source, marks) == PICTURE


def test_the_documented_flow_is_drawn_as_shown() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sagas.md").read_text()
    namespace: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], namespace)
    assert picture_of(namespace["order"], {"reserve": "completed"}) == page.split("```text\n")[1].split("```")[0]


def test_without_marks_there_is_no_room_for_them() -> None:
    assert picture_of(Flow("f").step("a", "a").step("long", "b").build()) == (
        "f version 1\n├─ a     step\n└─ long  step, handler b\n"
    )


def test_it_can_be_drawn_in_ascii() -> None:
    drawn = picture_of(ORDER, ascii=True)
    assert drawn.isascii()
    assert drawn.splitlines()[1:3] == [
        "|- reserve             step",
        "|  `- <- release       undoes it",
    ]


def test_a_long_name_pushes_only_its_own_line() -> None:
    drawn = picture_of(Flow("f").step("x" * 100, "a").step("b", "b").build())
    assert drawn.splitlines()[2] == "└─ b  step"


def test_a_wide_join_names_the_first_of_many() -> None:
    branches = [Branch().step(f"s{n}", "work") for n in range(20)]
    drawn = picture_of(Flow("f").fork("f1", *branches).join("met").build())
    assert "join of all: s0, s1, s2, s3, s4, s5, s6, s7 and 12 more" in drawn


GRAPH = {
    "name": "machine",
    "version": 2,
    "entry": "draft",
    "policy": {"on_timeout": "late"},
    "nodes": [
        {"id": "draft", "kind": "state"},
        {"id": "charge", "kind": "task", "handler": "charge", "undo": "refund"},
        {"id": "refund", "kind": "compensation", "handler": "refund"},
        {"id": "open", "kind": "state"},
        {"id": "done", "kind": "end"},
        {"id": "late", "kind": "terminal"},
    ],
    "edges": [
        {"id": "1", "source": "draft", "target": "charge", "on": "submit"},
        {"id": "2", "source": "draft", "target": "draft", "on": "edit", "when": "input.n > 1"},
        {"id": "3", "source": "charge", "target": "open"},
        {"id": "4", "source": "open", "target": "draft", "on": "reject", "label": "back"},
        {"id": "5", "source": "open", "target": "done", "on": "close"},
    ],
}


def test_a_graph_written_by_hand_is_drawn_as_the_ways_lead() -> None:
    assert picture_of(GRAPH, {"open": "waiting"}) == (
        "machine version 2\n"
        "├─ draft                            state\n"
        "│  ├─ submit\n"
        "│  │  ├─ charge                     task\n"
        "│  │  │  └─ ↩ refund                undoes it\n"
        "│  │  └─ open              waiting  state\n"
        "│  │     ├─ back\n"
        "│  │     │  └─ → draft\n"
        "│  │     └─ close\n"
        "│  │        └─ done                 end\n"
        "│  └─ edit if input.n > 1\n"
        "│     └─ → draft\n"
        "└─ late                             terminal\n"
    )


@settings(deadline=None, max_examples=40)
@given(flows())
def test_every_step_of_any_flow_is_in_its_picture(flow: Flow) -> None:
    definition = flow.build()
    graph = lower(definition)
    ids = {node.id for node in graph.nodes if node.kind != "end"}
    marks = {id: f"<{id}>" for id in ids}
    drawn = picture_of(definition, marks)
    assert all(drawn.count(mark) == 1 for mark in marks.values())
    assert all(f"<{id}>" in picture_of(dump_graph(graph), marks) for id in ids)
