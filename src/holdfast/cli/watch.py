"""The definitions of a directory while one works on them: published when they change, as the next version.

Only for development. What cannot be read is complained about and changes nothing: the version that runs stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.cli.output import complain
from holdfast.cli.validate import SUFFIXES, read_files
from holdfast.cli.written import graph_of
from holdfast.compiler.compile import compile_graph
from holdfast.definitions.steps.model import Workflow
from holdfast.errors import HoldfastError, NotFound
from holdfast.runtime.engine import Engine
from holdfast.runtime.publishing import Published
from holdfast.store.flows import FlowVersion

PAUSE: Final = 0.3  # seconds between two looks
DEVELOPER: Final = "development"

log = logging.getLogger("holdfast.up")

Stamp = tuple[tuple[str, int, int], ...]


class Definitions:
    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._directory = directory
        self._seen: Stamp = ()

    async def publish(self) -> list[Published]:
        """What is there now, all of it; problems are printed and keep back only the workflow they are in."""
        self._seen = self._stamp()
        workflows, problems = await asyncio.to_thread(read_files, [self._directory])
        for problem in problems:
            log.warning("%s", problem)
        done: list[Published] = []
        for workflow in workflows:
            try:
                done.append(await self._publish(workflow))
            except HoldfastError as refusal:
                complain(refusal)
        return done

    async def follow(self) -> None:
        """Until cancelled: look now and then whether a file has changed, come or gone."""
        while True:
            await asyncio.sleep(PAUSE)
            if self._stamp() == self._seen:
                continue
            for one in await self.publish():
                if one.new:
                    log.info("%s version %d is published.", one.name, one.version)

    def _stamp(self) -> Stamp:
        """What tells one content from another without reading it."""
        return tuple(sorted(self._stamps()))

    def _stamps(self) -> Iterator[tuple[str, int, int]]:
        for path in self._directory.rglob("*"):
            try:
                found = path.stat()
            except OSError:  # gone since it was listed
                continue
            if path.suffix in SUFFIXES:
                yield str(path), found.st_mtime_ns, found.st_size

    async def _publish(self, workflow: Workflow) -> Published:
        """As the version it says if that is free, else as the next one, unless the newest says the same."""
        versions = await self._versions(workflow.id)
        newest = max(versions, key=lambda flow: flow.version, default=None)
        if newest is None or workflow.version > newest.version:
            return await self._engine.publish(workflow, by=DEVELOPER)
        same = msgspec.structs.replace(workflow, version=newest.version)
        if compile_graph(graph_of(same)).hash == newest.hash:
            return Published(newest.name, newest.version, newest.hash, False)
        return await self._engine.publish(msgspec.structs.replace(same, version=newest.version + 1), by=DEVELOPER)

    async def _versions(self, name: str) -> list[FlowVersion]:
        try:
            return [flow for flow in await self._engine.flows(name) if flow.org == self._engine.org]
        except NotFound:
            return []
