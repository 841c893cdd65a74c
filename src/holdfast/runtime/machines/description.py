"""Descriptions of published machines: their states, events and source, out of the version that runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec

from holdfast.errors import Refused
from holdfast.graph.compiled import graph_of
from holdfast.graph.machine import MachineConfig, StateConfig
from holdfast.runtime.machines.machine import Machine
from holdfast.store.reads.flows import FlowDocument


class MachineState(msgspec.Struct, frozen=True):
    name: str
    category: str | None
    is_initial: bool
    is_final: bool


class MachineEvent(msgspec.Struct, frozen=True):
    code: int
    name: str


class MachineDescription(msgspec.Struct, frozen=True, kw_only=True):
    """One effective version of a machine. `blueprint` and `policy` are the documents it was imported from."""

    environment: str
    definition: str
    version: int
    blueprint_version: int
    policy_name: str | None
    hash: str
    created_by: str | None
    published_at: datetime
    states: list[MachineState]
    events: list[MachineEvent]
    blueprint: Any
    policy: Any


def describe(flow: FlowDocument) -> MachineDescription:
    source = _source(flow)
    graph = graph_of(flow.graph)
    config = msgspec.convert(graph.config, MachineConfig)
    categories = {node.id: msgspec.convert(node.config, StateConfig).category for node in graph.nodes}
    return MachineDescription(
        environment=config.environment,
        definition=config.definition,
        version=flow.version,
        blueprint_version=config.blueprint,
        policy_name=config.policy_name,
        hash=flow.hash,
        created_by=flow.created_by,
        published_at=flow.published_at,
        states=[
            MachineState(node.id, categories[node.id], node.id == graph.entry, node.kind == "terminal")
            for node in graph.nodes
        ],
        events=[MachineEvent(code, name) for name, code in sorted(config.codes.items(), key=lambda each: each[1])],
        blueprint=source["blueprint"],
        policy=source.get("policy"),
    )


def machine_of(flow: FlowDocument) -> Machine:
    source = _source(flow)
    return Machine.load(source["blueprint"], source.get("policy"))


def no_machine(name: str) -> Refused:
    return Refused(f"{name!r} is no machine.", code="NOT_A_MACHINE", hint="Start it, and send it signals.")


def _source(flow: FlowDocument) -> dict[str, Any]:
    """The documents of a machine; a flow that was published as anything else has none."""
    source: Any = flow.source
    if flow.kind != "machine" or not isinstance(source, dict) or "blueprint" not in source:
        raise no_machine(flow.name)
    return cast(dict[str, Any], source)
