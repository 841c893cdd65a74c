"""Checks of regions: their nodes, their windows, and where interrupts lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.model import Graph, Region
from holdfast.graph.topology import Topology
from holdfast.graph.windows import WINDOWS

Found = Iterator[Diagnostic]


def check_regions(graph: Graph, topology: Topology) -> Found:
    for id, count in Counter(region.id for region in graph.regions).items():
        if count > 1:
            yield problem("DUPLICATE_REGION", f"{count} regions are called {id!r}.", f"regions.{id}")
    owners: dict[str, str] = {}
    for region in graph.regions:
        yield from _nodes(region, topology, owners)
        yield from _targets(region, topology)
        if region.window not in WINDOWS:
            yield problem("BAD_EDIT_WINDOW", f"{region.window!r} is no edit window.", f"regions.{region.id}.window")


def _nodes(region: Region, topology: Topology, owners: dict[str, str]) -> Found:
    for node in region.nodes:
        place = f"regions.{region.id}.nodes.{node}"
        if node not in topology.nodes:
            yield problem("UNKNOWN_REGION_NODE", f"{node!r} is not a node.", place)
        elif owners.setdefault(node, region.id) != region.id:
            yield problem("REGION_OVERLAP", f"{node!r} lies in the region {owners[node]!r} already.", place)


def _targets(region: Region, topology: Topology) -> Found:
    place = f"regions.{region.id}"
    for verb, target in sorted(region.verbs.items()):
        if target not in topology.nodes:
            yield problem("UNKNOWN_REGION_NODE", f"The target {target!r} is not a node.", f"{place}.verbs.{verb}")
    if region.amendment is not None and region.amendment not in topology.nodes:
        yield problem("UNKNOWN_REGION_NODE", f"{region.amendment!r} is not a node.", f"{place}.amendment")
    for verb in sorted((region.guards.keys() | region.conditions.keys()) - region.verbs.keys()):
        yield problem("UNKNOWN_REGION_VERB", f"{verb!r} is not among the verbs of the region.", f"{place}.verbs.{verb}")
