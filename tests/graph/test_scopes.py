"""Scopes: on any shape, what the compiler says about a node fits every way that leads there."""

from __future__ import annotations

from graph_samples import shape, shaped_graphs
from hypothesis import given

from holdfast.graph.model import Graph
from holdfast.graph.scopes import Scopes, arrivals, find_scopes
from holdfast.graph.topology import read_topology


def stack(scopes: Scopes, split: str | None) -> list[str]:
    """From the outside in."""
    return list(scopes.enclosing(split))[::-1]


@given(shaped_graphs())
def test_a_node_stands_in_what_all_its_ways_have_in_common(sample: Graph) -> None:
    topology = read_topology(sample)
    scopes = find_scopes(topology)
    assert set(scopes.inside) == topology.reachable
    for node in topology.reachable:
        ways = [stack(scopes, way) for way in arrivals(topology, scopes, node)]
        shared = ways[0]
        for way in ways[1:]:
            shared = [ours for ours, theirs in zip(shared, way, strict=False) if ours == theirs]
        kind = topology.nodes[node].kind
        expected = {"terminal": [], "join": shared[:-1]}.get(kind, shared)
        assert stack(scopes, scopes.inside[node]) == expected
        if kind == "join":
            assert scopes.closes[node] == (shared[-1] if shared else None)


def test_a_split_found_to_stand_outside_takes_its_branches_along() -> None:
    sample = shape(
        "start:condition out:split in:split a b c met:join end:end",
        "start>out start>in:error out>in out>c in>a in>b a>met b>met met>end c>end",
    )
    scopes = find_scopes(read_topology(sample))
    assert stack(scopes, scopes.inside["a"]) == ["in"]
    assert scopes.inside["in"] is None
    assert scopes.closes == {"met": "in"}
