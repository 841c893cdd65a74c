"""Drawing graphs: one shape per behaviour, and no name can break out of its label."""

from __future__ import annotations

import re

import pytest
from graph_samples import ANY_GRAPH, chain, edge, fork_and_join, graph, node
from hypothesis import given

from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.graph.kinds import KINDS
from holdfast.graph.model import Graph

LABEL = r'"(?:[\w .:\-]|<br/>|#\d+;)+"'
NODE = re.compile(
    rf"    n\d+(?:\(|\[|\[\[|\(\[|\(\(|\[/|\[\\|\(\(\(|\{{|>){LABEL}(?:\)|\]|\]\]|\]\)|\)\)|/\]|\\\]|\)\)\)|\}})"
)
EDGE = re.compile(rf"    n\d+ (?:-->|-\.->)(?:\|{LABEL}\|)? n\d+")
ENTRY = re.compile(r"    entry\(\( \)\) --> n\d+")

HOSTILE = [
    'a"]; click a "javascript:alert(1)"',
    "end",
    "subgraph x",
    "a --> b",
    "%% comment",
    "<script>alert(1)</script>",
    "line\nbreak",
    "#quot;",
    "`markdown`",
    "1. list",
    "\ud800",
    "\u202eright to left",
    "|pipe|",
]


def test_a_fork_reads_as_drawn() -> None:
    assert to_mermaid(fork_and_join()) == (
        "flowchart TD\n"
        '    n1[/"fork<br/>split"\\]\n'
        '    n2["ship<br/>task"]\n'
        '    n3["bill<br/>task"]\n'
        '    n4[\\"met<br/>join"/]\n'
        '    n5((("end<br/>end")))\n'
        "    entry(( )) --> n1\n"
        "    n1 --> n2\n"
        "    n1 --> n3\n"
        "    n2 --> n4\n"
        "    n3 --> n4\n"
        "    n4 --> n5\n"
    )


def test_labels_come_from_label_event_and_condition() -> None:
    sample = chain(
        node("a"),
        more=[
            edge("a", "end", "1", on="error"),
            edge("a", "end", "2", on="approved", when="input.x"),
            edge("a", "end", "3", on="approved", when="input.x", label="large"),
        ],
    )
    assert to_mermaid(sample).splitlines()[-3:] == [
        '    n1 -.->|"error"| n2',
        '    n1 -->|"approved #91;input.x#93;"| n2',
        '    n1 -->|"large"| n2',
    ]


def test_what_is_missing_is_drawn_as_unknown() -> None:
    drawn = to_mermaid(graph([node("a", "mystery")], [edge("a", "ghost")]))
    assert 'n1>"a<br/>mystery"]' in drawn
    assert 'n2>"ghost<br/>unknown node"]' in drawn


def is_well_formed(drawn: str) -> bool:
    head, *lines = drawn.removesuffix("\n").split("\n")
    patterns = (NODE, EDGE, ENTRY)
    return head == "flowchart TD" and all(any(pattern.fullmatch(line) for pattern in patterns) for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_drawn(kind: str) -> None:
    assert is_well_formed(to_mermaid(chain(node("a", kind))))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_labels(name: str) -> None:
    sample = chain(node(name, name), more=[edge(name, name, name, on=name, when=name), edge(name, "end", label=name)])
    assert is_well_formed(to_mermaid(sample))


@given(ANY_GRAPH)
def test_any_graph_can_be_drawn(sample: Graph) -> None:
    assert is_well_formed(to_mermaid(sample))
