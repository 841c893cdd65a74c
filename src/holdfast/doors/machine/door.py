"""The door of machines: blueprints and policies in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, cast

import msgspec

from holdfast.doors.machine.definition import MachineDefinition, is_combined
from holdfast.doors.source import JSON, Document, Door, Received, Source
from holdfast.errors import Conflict, PayloadError
from holdfast.graph.model import Graph
from holdfast.payloads.encoding import decode


class MachineSource(Source):
    """A machine under the number of its effective version, which the engine gives."""

    def __init__(self, written: MachineDefinition | Mapping[str, Any], version: int | None = None) -> None:
        self._written = written
        self._version = version

    @cached_property
    def machine(self) -> MachineDefinition:
        if isinstance(self._written, MachineDefinition):
            return self._written
        return MachineDefinition.parse(self._written["blueprint"], self._written.get("policy"))

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def version(self) -> int:
        if self._version is None and not isinstance(self._written, MachineDefinition):
            return self._written.get("version", 1)
        return self._version or 1

    @property
    def stored(self) -> dict[str, Any]:
        return {**self.machine.documents, "version": self.version}

    @property
    def content_hash(self) -> str:
        return self.machine.hash

    def check_follows(self, newest: Source) -> None:
        """Check that a blueprint keeps its content under its version: instances are distinguished by it."""
        if not isinstance(newest, MachineSource):
            return
        mine, theirs = self.machine, newest.machine
        if mine.blueprint_version < theirs.blueprint_version:
            raise Conflict(
                f"The newest blueprint of {self.name!r} has version {theirs.blueprint_version}; this one has"
                f" {mine.blueprint_version}.",
                code="BLUEPRINT_OUTDATED",
                hint="Give the blueprint a higher version.",
            )
        if mine.blueprint_version == theirs.blueprint_version and _bare(mine) != _bare(theirs):
            raise Conflict(
                f"Version {mine.blueprint_version} of the blueprint {self.name!r} was imported with other content.",
                code="BLUEPRINT_VERSION_TAKEN",
                hint="Give the changed blueprint a higher version.",
            )

    def numbered(self, version: int) -> MachineSource:
        """Make the same machine under another version."""
        return MachineSource(self._written, version)

    def lower(self) -> Graph:
        return self.machine.graph(self.version)

    def code(self) -> str:
        return self.machine.code()

    def document(self) -> Document:
        """Pack the blueprint and the policy for a server."""
        return Document(msgspec.json.encode(self.machine.documents), JSON, self.name)


def _bare(machine: MachineDefinition) -> str:
    """The hash of the blueprint without any policy."""
    return MachineDefinition.parse(machine.documents["blueprint"]).hash


def _take(written: object) -> Source | None:
    if isinstance(written, MachineDefinition):
        return MachineSource(written)
    return _open(cast(Mapping[str, Any], written)) if isinstance(written, Mapping) else None


def _open(stored: Mapping[str, Any]) -> Source | None:
    return MachineSource(stored) if is_combined(dict(stored)) else None


def _load(found: object) -> Source | None:
    return MachineSource(found) if isinstance(found, MachineDefinition) else None


def _receive(body: bytes, file: str) -> Received | None:
    """Read a body `{"blueprint": …, "policy": …}`; other JSON is for other doors."""
    try:
        content = decode(body, "The body")
    except PayloadError:
        return None
    if not is_combined(content):
        return None
    machine = MachineDefinition.parse(body, files=(file, file))
    return Received((MachineSource(machine),), machine.warnings)


DOOR: Final = Door(take=_take, open=_open, load=_load, media=(JSON,), receive=_receive)
