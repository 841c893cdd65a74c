"""The doors, one row each. Only this module knows all of them; a new door is a folder and a row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.doors import raw
from holdfast.doors.envelope import door as envelope
from holdfast.doors.envelope.model import ContractDefinition
from holdfast.doors.machine import door as machine
from holdfast.doors.machine.definition import MachineDefinition
from holdfast.doors.saga import door as saga
from holdfast.doors.saga.model import Definition
from holdfast.doors.source import Door, Received, Source
from holdfast.doors.steps import door as steps
from holdfast.doors.steps.model import Workflow
from holdfast.errors import DefinitionError
from holdfast.graph.model import Graph

# In the order in which they are asked: any JSON may be a graph, so the raw one comes last of those that read it.
DOORS: Final[dict[str, Door]] = {
    "envelope": envelope.DOOR,
    "machine": machine.DOOR,
    "raw": raw.DOOR,
    "saga": saga.DOOR,
    "steps": steps.DOOR,
}

Written = Source | Definition | Workflow | MachineDefinition | ContractDefinition | Graph | dict[str, Any]


def source_of(written: object) -> Source:
    """Find the door of a definition to publish. Without a door it is read as a graph."""
    if isinstance(written, Source):
        return written
    found = (door.take(written) for door in DOORS.values())
    return next((source for source in found if source is not None), None) or raw.RawSource(written)


def open_source(stored: Mapping[str, Any]) -> Source:
    """Find the door that wrote a stored source. Without a door it is read as a graph, when first needed."""
    found = (door.open(stored) for door in DOORS.values())
    return next((source for source in found if source is not None), None) or raw.RawSource(dict(stored))


def load_source(found: object) -> Source | None:
    """Recognise what a module holds. None: no door writes such a thing in Python."""
    loaded = (door.load(found) for door in DOORS.values())
    return next((source for source in loaded if source is not None), None)


def receive(body: bytes, media: str, file: str) -> Received:
    """Read the body of a request, by its media type."""
    readers = (door.receive for door in DOORS.values() if media in door.media and door.receive is not None)
    found = (reader(body, file) for reader in readers)
    received = next((each for each in found if each is not None), None)
    if received is None:
        known = ", ".join(media_types())
        raise DefinitionError(
            f"Definitions are not read from {media!r}.", code="GRAPH_INVALID", hint=f"Send one of {known}."
        )
    return received


def media_types() -> tuple[str, ...]:
    return tuple(dict.fromkeys(media for door in DOORS.values() for media in door.media))
