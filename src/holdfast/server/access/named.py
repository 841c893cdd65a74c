"""Capabilities named by versions of flows, remembered: a published one never changes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from holdfast.errors import DefinitionError, NotFound
from holdfast.graph.compiled import Compiled
from holdfast.runtime.engine import Engine
from holdfast.runtime.people.visibility import UNREADABLE, Named, named_in

KEPT: Final = 2000
MOST_VERSIONS: Final = 100  # of one flow are looked at


class NamedCapabilities:
    """Capabilities named by a version, cached: a published one never changes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, int], Named] = OrderedDict()
        self._open: OrderedDict[tuple[str, str], int] = OrderedDict()  # no version up to this one names any

    async def of(self, engine: Engine, flow: str, version: int) -> Named:
        key = engine.org, flow, version
        found = self._kept.get(key)
        if found is not None:
            return found
        try:
            found = _named((await engine.flow(flow, version)).graph)
        except (NotFound, DefinitionError):
            return UNREADABLE
        self._kept[key] = found
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    async def are_none(self, engine: Engine, flow: str, newest: int) -> bool:
        """Check that no version of a flow names capabilities for seeing its instances or its steps.

        Instances keep the version they began with, so the newest one alone says nothing about them. Of a flow with many
        versions that were never looked at, this is not found out: the answer is no.
        """
        key = engine.org, flow
        if self._open.get(key) == newest:
            return True
        versions = await engine.page_versions(flow, limit=MOST_VERSIONS)
        if len(versions) == MOST_VERSIONS and versions[-1].version > self._open.get(key, 0):
            return False
        for version in versions:
            named = await self.of(engine, flow, version.version)
            if not named.is_known or named.to_see or named.by_step:
                return False
        self._open[key] = newest
        if len(self._open) > KEPT:
            self._open.popitem(last=False)
        return True


def _named(graph: Compiled) -> Named:
    return named_in(graph.policy, graph.nodes.values(), (edge.guard for edge in graph.edges.values()))
