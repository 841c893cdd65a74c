"""Checks of regions: their nodes and the targets of their interrupts exist, and no node lies in two of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.graph.checks.fields import EDIT_WINDOWS
from holdfast.graph.diagnostics import Diagnostic, problem
from holdfast.graph.model import Graph, Region
from holdfast.graph.topology import Topology

Found = Iterator[Diagnostic]


def check_regions(graph: Graph, topology: Topology) -> Found:
    for id, count in Counter(region.id for region in graph.regions).items():
        if count > 1:
            yield problem("DUPLICATE_REGION", f"{count} regions are called {id!r}.", f"regions.{id}")
    regions: dict[str, str] = {}
    for region in graph.regions:
        yield from _targets(region, topology)
        for node in region.nodes:
            if node not in topology.nodes:
                yield problem("UNKNOWN_REGION_NODE", f"{node!r} is not a node.", f"regions.{region.id}.nodes")
            elif regions.setdefault(node, region.id) != region.id:
                message = f"{node!r} lies in the region {regions[node]!r} as well."
                yield problem("REGION_OVERLAP", message, f"regions.{region.id}.nodes")


def _targets(region: Region, topology: Topology) -> Found:
    place = f"regions.{region.id}"
    if region.window not in EDIT_WINDOWS:
        yield problem("BAD_EDIT_WINDOW", f"There is no edit window called {region.window!r}.", f"{place}.window")
    for verb, target in region.verbs.items():
        if target not in topology.nodes:
            yield problem("UNKNOWN_INTERRUPT", f"The target {target!r} is not a node.", f"{place}.verbs.{verb}")
    if region.amendment is not None and region.amendment not in topology.nodes:
        yield problem("UNKNOWN_INTERRUPT", f"The target {region.amendment!r} is not a node.", f"{place}.amendment")
