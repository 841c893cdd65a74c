"""Rows of compiled graphs and of their changes, as contracts and patches share them."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.graph.compiled import Compiled, dump_compiled, graph_of
from holdfast.graph.envelope import EffectiveConfig
from holdfast.graph.model import dump_graph
from holdfast.payloads import canonical
from holdfast.runtime.commit.starter import new_id
from holdfast.store.contract_changes import Action, NewEffective, NewEvent


def graph_row(org: str, compiled: Compiled, base: dict[str, Any], by: str, *, is_default: bool) -> NewEffective:
    """Make the row of a graph that documents run by."""
    dumped = dump_graph(graph_of(compiled))
    return NewEffective(
        id=new_id(org, None, None),
        org=org,
        name=compiled.name,
        version=compiled.version,
        type=msgspec.convert(compiled.config, EffectiveConfig).envelope.type,
        is_default=is_default,
        nodes=canonical(dumped["nodes"]),
        edges=canonical(dumped.get("edges", [])),
        base=canonical(base),
        compiled=canonical(dump_compiled(compiled)),
        hash=compiled.hash,
        compiler_version=compiled.compiler_version,
        created_by=by,
    )


def event_of(
    org: str,
    type: str,
    action: Action,
    by: str,
    reason: str | None,
    *,
    version: int | None = None,
    origin: int | None = None,
) -> NewEvent:
    return NewEvent(org, type, action, version, origin, by, reason)
