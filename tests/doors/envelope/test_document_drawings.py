"""Drawings of documents: slots as groups, the envelope locked, verbs that interrupt dotted, and no box over another."""

from __future__ import annotations

import re
from random import Random

import pytest
from envelope_samples import INVOICE, LIMITS, LONG, ONE, patch
from msgspec.structs import replace
from random_envelopes import TABLES, random_contract, random_patch
from tests.hostile_texts import HOSTILE_TEXTS, MARKUP, steers

from holdfast.doors.envelope.effective import compile_effective, compile_envelope
from holdfast.graph.compiled import Compiled, graph_of
from holdfast.graph.drawing.layout import lay_out
from holdfast.graph.drawing.mermaid import to_mermaid
from holdfast.graph.drawing.svg import to_svg
from holdfast.graph.envelope import NEVER
from holdfast.graph.model import Graph

Box = tuple[int, int, int, int]
RECT = r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"'


def test_an_effective_graph_in_mermaid() -> None:
    graph = graph_of(compile_effective(INVOICE, patch(ONE)))
    assert to_mermaid(graph) == (
        "flowchart TD\n"
        '    n1("sys:start<br/>start")\n'
        '    n2("sys:state:cancelled<br/>stage#44; locked")\n'
        '    n3(["sys:state:draft<br/>state#44; editable"])\n'
        '    n4("sys:state:submitted<br/>stage#44; amend_only")\n'
        '    n8{"sys:gate:approve<br/>lifecycle_gate"}\n'
        '    n10{"sys:gate:reject<br/>lifecycle_gate"}\n'
        '    n11("sys:state:active<br/>stage#44; locked")\n'
        '    n12((("sys:end<br/>terminal")))\n'
        '    subgraph g1["slot review#44; amend_only#44; stable"]\n'
        '        n5("sys:slot:review:in<br/>slot")\n'
        '        n6(["usr:review:ann<br/>approval"])\n'
        '        n7("sys:slot:review:out<br/>slot")\n'
        '        n9("sys:slot:review:rejected<br/>slot")\n'
        "    end\n"
        "    entry(( )) --> n1\n"
        "    n8 --> n11\n"
        "    n10 --> n3\n"
        "    n7 --> n8\n"
        "    n9 --> n10\n"
        "    n1 --> n3\n"
        "    n11 --> n12\n"
        "    n2 --> n12\n"
        '    n3 -->|"submit #91;entity.total #62; 0#93;"| n4\n'
        "    n4 --> n5\n"
        '    n6 -->|"approved"| n7\n'
        '    n6 -->|"rejected"| n9\n'
        "    n5 --> n6\n"
        '    g1 -.->|"withdraw"| n3\n'
        '    n11 -.->|"cancel"| n2\n'
        '    n4 -.->|"withdraw"| n3\n'
        "    classDef locked stroke-width:3px\n"
        "    class n1,n2,n3,n4,n5,n7,n8,n9,n10,n11,n12 locked\n"
    )


def test_an_envelope_in_mermaid_has_the_way_that_no_token_takes_where_there_is_no_other() -> None:
    drawn = to_mermaid(graph_of(compile_envelope(INVOICE)))
    assert "subgraph" not in drawn
    assert drawn.count(f'|"{NEVER}"|') == 1
    assert to_mermaid(graph_of(compile_effective(INVOICE, patch(ONE)))).count(NEVER) == 0


LINE = re.compile(
    r'    (?:    )?n\d+[(\[{/]+"(?:[\w .:\-]|<br/>|#\d+;)+"[)\]}/\\]+'
    r'|    subgraph g\d+\["(?:[\w .:\-]|#\d+;)+"\]|    end'
    r'|    (?:n|g)\d+ (?:-->|-\.->)(?:\|"(?:[\w .:\-]|#\d+;)+"\|)? n\d+|    entry\(\( \)\) --> n\d+'
    r"|    classDef locked stroke-width:3px|    class n\d+(?:,n\d+)* locked"
)


@pytest.mark.parametrize(
    "text", [*HOSTILE_TEXTS.values(), *MARKUP.values(), '"]; click n1 "javascript:alert(1)"', "end"]
)
def test_hostile_names_of_slots_and_verbs_stay_in_their_labels(text: str) -> None:
    graph = graph_of(compile_effective(INVOICE, patch(ONE)))
    nodes = tuple(replace(node, slot=text) if node.slot is not None else node for node in graph.nodes)
    regions = tuple(
        replace(region, id=f"slot:{text}" if region.id == "slot:review" else region.id, verbs={text: "sys:state:draft"})
        for region in graph.regions
    )
    made = replace(graph, nodes=nodes, regions=regions)
    head, *lines = to_mermaid(made).removesuffix("\n").split("\n")
    assert head == "flowchart TD"
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert not steers(to_svg(made, text))


# --- SVG --------------------------------------------------------------------------------------------------------------


def boxes(drawn: str) -> tuple[dict[str, Box], list[Box]]:
    """Read the boxes of nodes, by their ids, and those of slots."""
    nodes = {
        id: (int(x), int(y), int(width), int(height))
        for id, x, y, width, height in re.findall(rf"<g class=\"node[^>]*><title>([^<]*)</title>{RECT}", drawn)
    }
    slots = [(int(x), int(y), int(w), int(h)) for x, y, w, h in re.findall(rf'<g class="slot">{RECT}', drawn)]
    return nodes, slots


def overlap(one: Box, other: Box) -> bool:
    return (
        one[0] < other[0] + other[2]
        and other[0] < one[0] + one[2]
        and one[1] < other[1] + other[3]
        and other[1] < one[1] + one[3]
    )


def within(inner: Box, outer: Box) -> bool:
    return (
        outer[0] <= inner[0]
        and outer[1] <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2]
        and inner[1] + inner[3] <= outer[1] + outer[3]
    )


def graphs(seeds: range) -> list[Compiled]:
    made: list[Compiled] = []
    for seed in seeds:
        random = Random(seed)
        contract = random_contract(random)
        made.append(compile_envelope(contract))
        made.append(compile_effective(contract, random_patch(random, contract, filled=True, size=12), tables=TABLES))
    return made


def test_boxes_lie_apart_and_slots_hold_their_own_steps_only() -> None:
    slots_seen = 0
    for compiled in graphs(range(60)):
        graph = graph_of(compiled)
        drawn = to_svg(graph, "drawing")
        [size] = re.findall(r'viewBox="0 0 (\d+) (\d+)"', drawn)
        nodes, slots = boxes(drawn)
        assert set(nodes) == set(compiled.nodes)
        placed = sorted(nodes.items())
        assert not [
            (one, other)
            for number, (one, box) in enumerate(placed)
            for other, near in placed[:number]
            if overlap(box, near)
        ]
        named = sorted({node.slot for node in graph.nodes if node.slot is not None})
        assert len(slots) == len(named)
        for name, frame in zip(named, slots, strict=True):
            inside = {id for id, box in nodes.items() if within(box, frame)}
            touched = {id for id, box in nodes.items() if overlap(box, frame)}
            assert inside == touched == {node.id for node in graph.nodes if node.slot == name}
        assert all(within(box, (0, 0, int(size[0]), int(size[1]))) for box in [*nodes.values(), *slots])
        slots_seen += len(slots)
    assert slots_seen > 60


def test_the_envelope_is_locked_and_steps_are_not() -> None:
    drawn = to_svg(graph_of(compile_effective(INVOICE, LONG, tables=LIMITS)), "drawing")
    for classes, id in re.findall(r'<g class="(node[^"]*)"><title>([^<]*)</title>', drawn):
        assert ("locked" in classes.split()) == id.startswith("sys:")
    assert drawn.count('class="lock"') == drawn.count('class="node locked"') > 0


def test_verbs_that_interrupt_are_lines_of_their_own() -> None:
    drawn = to_svg(graph_of(compile_effective(INVOICE, LONG, tables=LIMITS)), "drawing")
    verbs = re.findall(r'<g class="verb">.*?<title>(\w+)</title>', drawn)
    # From the state and from its slot; `submit` is an edge, since a document rests in `draft`.
    assert sorted(verbs) == ["cancel", "withdraw", "withdraw"]


def test_marks_are_signs_as_well_as_colours() -> None:
    graph = graph_of(compile_effective(INVOICE, patch(ONE)))
    drawn = to_svg(graph, "drawing", {"usr:review:ann": "added", "usr:review:in>ann": "changed"})
    assert re.search(r'<g class="node added"><title>usr:review:ann</title>.*<text class="sign"[^>]*>\+</text>', drawn)
    assert drawn.count('class="edge changed"') == 1


def test_edges_that_lead_back_go_around() -> None:
    graph: Graph = graph_of(compile_effective(INVOICE, patch(ONE)))
    back = [edge.id for edge in graph.edges if edge.source == "sys:gate:reject"]
    drawn = to_svg(graph, "drawing", dict.fromkeys(back, "changed"))
    [path] = re.findall(r'<g class="edge changed"><path d="([^"]*)"', drawn)
    [width] = re.findall(r'viewBox="0 0 (\d+) ', drawn)
    assert int(width) - 60 < int(re.findall(r"L(\d+) ", path)[0]) < int(width)


# --- the layout -------------------------------------------------------------------------------------------------------


def test_layers_go_down_along_edges() -> None:
    sizes = dict.fromkeys("abcd", (10, 10))
    found = lay_out("abcd", sizes, [("a", "b"), ("b", "c"), ("a", "c"), ("c", "a"), ("b", "b"), ("a", "nowhere")])
    depth = {box: place[1] for box, place in found.places.items()}
    assert depth["a"] == depth["d"] < depth["b"] < depth["c"]
    assert list(found.bends) == [("a", "c")]
    assert lay_out("", {}, []).size == (0, 0)
