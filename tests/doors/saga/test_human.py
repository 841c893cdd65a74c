"""`Flow.human`: what is written, what it becomes, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.doors.saga import Flow
from holdfast.doors.saga.lowering import lower
from holdfast.errors import DefinitionError
from holdfast.graph.checks.check import check
from holdfast.graph.model import Edge, Graph, Node


def test_a_human_step_becomes_a_node_between_its_neighbours() -> None:
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    definition = (
        Flow("order")
        .step("pack", "pack")
        .human("sign", form=form, roles=["boss", "clerk"], due=60, priority=80, metadata={"k": 1})
        .step("ship", "ship")
        .build()
    )
    graph = lower(definition)
    [sign] = [node for node in graph.nodes if node.kind == "human"]
    assert (sign.id, sign.form, sign.roles, sign.due) == ("sign", form, ("boss", "clerk"), 60.0)
    assert (sign.priority, sign.metadata) == (80, {"k": 1})
    assert [(e.source, e.target, e.on) for e in graph.edges] == [
        ("pack", "sign", "completed"), ("sign", "ship", "completed"), ("ship", "end", "completed"),
    ]  # fmt: skip
    assert check(graph) == ()
    assert definition.source["items"][1]["item"] == "human"


def test_one_role_may_be_given_as_it_is() -> None:
    assert lower(Flow("f").human("sign", roles="boss").build()).nodes[0].roles == ("boss",)


def test_the_form_is_a_copy() -> None:
    form: dict[str, Any] = {"fields": ["a"]}
    built = Flow("f").human("sign", form=form).build()
    form["fields"].append("b")
    assert lower(built).nodes[0].form == {"fields": ["a"]}


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"due": 0}, "due"), ({"due": -5}, "due"), ({"due": "soon"}, "due"), ({"due": float("nan")}, "due"),
        ({"due": 1e12}, "due"), ({"priority": 101}, "priority"), ({"priority": 1.5}, "priority"),
        ({"roles": [""]}, "roles"),
        ({"roles": [7]}, "roles"), ({"roles": 7}, "roles"), ({"roles": ["x" * 201]}, "roles"),
        ({"form": ["a"]}, "form"),
        ({"form": {"a": float("inf")}}, "form"), ({"form": {"a": object()}}, "form"), ({"metadata": 3}, "metadata"),
    ],
)  # fmt: skip
def test_what_build_refuses(options: dict[str, Any], place: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Flow("f").human("sign", **options).build()
    assert [(d.code, d.place) for d in caught.value.diagnostics] == [("STEP_OPTION_INVALID", f"steps.sign.{place}")]


@pytest.mark.parametrize("name", ["", "a@b", "cond#1", "_root_", "x" * 201])
def test_its_name_follows_the_rules_of_steps(name: str) -> None:
    with pytest.raises(DefinitionError, match="STEP_NAME_RESERVED"):
        Flow("f").human(name).build()


def test_it_shares_its_name_with_no_other_step() -> None:
    with pytest.raises(DefinitionError, match="STEP_DUPLICATE"):
        Flow("f").step("sign", "x").human("sign").build()


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"roles": ("",)}, "BAD_NAME"), ({"due": 0.0}, "BAD_DURATION"), ({"due": -1.0}, "BAD_DURATION")],
)
def test_a_graph_is_checked_as_well(fields: dict[str, Any], code: str) -> None:
    nodes = (Node(id="sign", kind="human", **fields), Node(id="end", kind="end"))
    graph = Graph(name="f", entry="sign", nodes=nodes, edges=(Edge(id="e", source="sign", target="end"),))
    assert [d.code for d in check(graph)] == [code]
