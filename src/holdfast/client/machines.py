"""Machines of a server: import them, look at them, try them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.client.connection import EVERYTHING, Connection, given, part, taken
from holdfast.errors import Refused
from holdfast.runtime.machines.description import MachineDescription
from holdfast.runtime.machines.machine import Loadable, Machine, read_policy
from holdfast.runtime.machines.simulation import SimulatedEntry, Simulation, Tried
from holdfast.runtime.machines.triggers import TriggerResult
from holdfast.runtime.publishing import Published
from holdfast.store.reads.flows import FlowVersion

MachineVersions = list[FlowVersion]


class _Simulated(msgspec.Struct, frozen=True):
    """A simulation as a server tells of it."""

    initial: str
    entries: tuple[SimulatedEntry, ...]
    is_over: bool
    data: Any


class ClientMachines:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def import_machine(
        self,
        machine: Machine | Loadable | None = None,
        policy: Loadable | None = None,
        *,
        environment: str | None = None,
        by: str | None = None,
        dry_run: bool = False,
    ) -> Published:
        """Publish a machine, or the newest blueprint of the server with another policy."""
        if machine is None and policy is None:
            hint = "Pass a machine, or a policy."
            raise Refused("There is nothing to import.", code="MACHINE_MISSING", hint=hint)
        if machine is None:
            documents: dict[str, Any] = {"policy": read_policy(policy or "")}
        else:
            documents = (machine if isinstance(machine, Machine) else Machine.load(machine, policy)).documents
        query = {"dry_run": dry_run or None, "environment": environment}
        headers = self._server.person(by)
        done = self._server.send("POST", "/machines", query=query, body=documents, headers=headers)
        return taken(Published, done["published"])

    def list(self, environment: str | None = None, *, limit: int = EVERYTHING) -> MachineVersions:
        """List machines by name, each in its newest version."""
        return [taken(FlowVersion, item) for item in self._server.pages("/machines", limit, environment=environment)]

    def get(self, environment: str, definition: str, version: int | None = None) -> MachineDescription:
        """Describe one version of a machine, by default the newest: its states, events and source."""
        return taken(MachineDescription, self._server.get(machine_path(environment, definition), version=version))

    def chart(self, environment: str, definition: str, version: int | None = None) -> str:
        """Draw one version of a machine as a Mermaid state diagram."""
        return self._server.text(f"{machine_path(environment, definition)}/chart", version=version)

    def simulate(
        self,
        environment: str,
        definition: str,
        events: Iterable[Tried],
        *,
        version: int | None = None,
        actor: str = "simulation",
        capabilities: Iterable[str] = (),
        now: datetime | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Simulation:
        """Send events to an instance that exists only in the answer."""
        tried = [_tried(event) for event in events]
        wish = given(events=tried, version=version, actor=actor, now=now, data=data)
        wish["capabilities"] = [*capabilities]
        told = self._server.post(f"{machine_path(environment, definition)}/simulate", wish)
        done = taken(_Simulated, told)
        return Simulation(initial=done.initial, entries=done.entries, is_over=done.is_over, data=done.data)

    def backfill(
        self,
        environment: str,
        definition: str,
        external_ref: str,
        events: Iterable[Mapping[str, Any]],
        *,
        by: str | None = None,
        version: int | None = None,
    ) -> TriggerResult:
        """Give an object that is new to its machine the past it has; the key needs the scope `operate`."""
        wish = given(external_ref=external_ref, events=[{**event} for event in events], version=version)
        return taken(TriggerResult, self._server.act(f"{machine_path(environment, definition)}/backfill", wish, by))


def machine_path(environment: str, definition: str) -> str:
    return f"/machines/{part(environment)}/{part(definition)}"


def _tried(event: Tried) -> Any:
    if isinstance(event, tuple):
        name, payload = event
        return {"event": name, "payload": payload}
    return event
