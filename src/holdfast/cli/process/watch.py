"""Watch the definitions of a directory, and publish changed ones as the next version.

Only for development. A definition that cannot be read is reported and changes nothing: the newest version stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from holdfast.cli.commands.validate import SUFFIXES, read_files
from holdfast.cli.render.output import complain
from holdfast.doors.steps.lowering import to_graph
from holdfast.doors.steps.model import Workflow
from holdfast.errors import HoldfastError, NotFound
from holdfast.graph.compile import compile_graph
from holdfast.logs import logger
from holdfast.runtime.engine import Engine
from holdfast.runtime.publishing import Published
from holdfast.store.reads.flows import FlowVersion

PAUSE: Final = 0.3  # seconds between two looks
DEVELOPER: Final = "development"

log = logger("holdfast.up")

Stamp = tuple[tuple[str, int, int], ...]


class Definitions:
    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine = engine
        self._directory = directory
        self._seen: Stamp = ()

    async def publish(self) -> list[Published]:
        """Publish all definitions of the directory; a problem is printed and holds back only its own workflow."""
        self._seen = self._stamp()
        files = await asyncio.to_thread(read_files, [self._directory])
        for problem in files.problems:
            log.warning("%s", problem)
        for read in files.contracts:
            log.warning("%s holds contracts or patches, which are not published from a directory.", read.file)
        done: list[Published] = []
        for workflow in files.workflows:
            try:
                done.append(await self._publish(workflow))
            except HoldfastError as refusal:
                complain(refusal)
        return done

    async def follow(self) -> None:
        """Poll the directory until cancelled, and publish when a file was changed, added or removed."""
        while True:
            await asyncio.sleep(PAUSE)
            if self._stamp() == self._seen:
                continue
            for one in await self.publish():
                if one.new:
                    log.info("%s version %d is published.", one.name, one.version)

    def _stamp(self) -> Stamp:
        """The path, time and size of each file: they tell a change without reading it."""
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
        """Publish a workflow by its own version if no other is as new, else as the next, unless the newest is equal."""
        versions = await self._versions(workflow.id)
        newest = max(versions, key=lambda flow: flow.version, default=None)
        if newest is None or workflow.version > newest.version:
            return await self._engine.publish(workflow, by=DEVELOPER)
        same = msgspec.structs.replace(workflow, version=newest.version)
        if compile_graph(to_graph(same)).hash == newest.hash:
            return Published(newest.name, newest.version, newest.hash, False)
        return await self._engine.publish(msgspec.structs.replace(same, version=newest.version + 1), by=DEVELOPER)

    async def _versions(self, name: str) -> list[FlowVersion]:
        try:
            return [flow for flow in await self._engine.flows(name) if flow.org == self._engine.org]
        except NotFound:
            return []
