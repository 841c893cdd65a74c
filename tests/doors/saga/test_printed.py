"""A flow is printed back in the same way whatever form it is in: as built, as published, as stored."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Branch, Engine, Flow, Graph, code_of, load_steps, mermaid_of, picture_of
from holdfast.errors import DefinitionError
from holdfast.graph.model import load_graph

ORDER = (
    Flow("order")
    .step("reserve", "reserve", undo="release")
    .fork("fulfil", Branch().step("ship", "ship"), Branch().step("bill", "bill"))
    .join("fulfilled")
    .build()
)
GRAPH: dict[str, Any] = {
    "name": "by hand",
    "entry": "rest",
    "nodes": [{"id": "rest", "kind": "state"}, {"id": "end", "kind": "end"}],
    "edges": [{"id": "go", "source": "rest", "target": "end", "on": "go"}],
}
YAML = """\
workflows:
  - id: leave.request
    steps:
      - {id: review, type: approval}
      - {id: granted, type: terminal}
    transitions:
      - {from: review, to: granted, event: approved}
"""


def test_a_flow_as_it_was_built_and_as_it_is_stored() -> None:
    for form in (ORDER, ORDER.source):
        known: dict[str, Any] = {}
        exec(code_of(form), known)
        assert known["flow"] == ORDER
        assert picture_of(form, {"ship": "running"}).startswith("order version 1\n├─ reserve")
        assert "running" in picture_of(form, {"ship": "running"}, ascii=True)
        assert mermaid_of(form).startswith("flowchart TD\n")
    assert mermaid_of(ORDER) == mermaid_of(ORDER.source)


@pytest.mark.anyio
async def test_a_flow_as_it_is_published(engine: Engine) -> None:
    await engine.publish(ORDER)
    published = await engine.flow("order")
    assert (code_of(published), picture_of(published)) == (code_of(ORDER), picture_of(ORDER))
    for name in ("reserve", "release", "ship", "bill", "fulfilled"):
        assert f'"{name}<br/>' in mermaid_of(published)


def test_a_workflow_of_steps_is_its_yaml() -> None:
    [workflow] = load_steps(YAML).require_sound()
    assert "leave.request" in code_of(workflow)
    assert "review" in picture_of(workflow)
    assert "review" in mermaid_of(workflow)


@pytest.mark.parametrize("form", [GRAPH, load_graph(GRAPH)])
def test_a_graph_has_no_code_but_a_picture(form: Graph | dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="SOURCE_UNREADABLE"):
        code_of(form)
    assert "rest" in picture_of(form)
    assert "rest" in mermaid_of(form)
