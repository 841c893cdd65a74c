"""Bodies to publish: read whole, checked whole, and only then stored."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.doors.registry import receive
from holdfast.doors.source import Source
from holdfast.runtime.engine import Engine
from holdfast.server.models.definitions import Finding, PublishedView


def read_definitions(body: bytes, media: str, file: str) -> tuple[Sequence[Source], list[Finding]]:
    """The definitions of a body, and what deserves a look; everything that is wrong is raised at once."""
    received = receive(body, media, file)
    return received.sources, [Finding.of(found) for found in received.findings]


async def publish_all(engine: Engine, definitions: Sequence[Source], *, by: str, dry_run: bool) -> list[PublishedView]:
    """All of them, or none."""
    published = await engine.publish_many(definitions, by=by, dry_run=dry_run)
    return [PublishedView.of(one) for one in published]
