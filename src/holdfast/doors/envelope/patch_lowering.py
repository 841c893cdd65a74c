"""Lower the steps of a sound patch to nodes and edges in the namespace of their slot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from holdfast.doors.envelope.model import ContractDefinition, PatchDefinition, PatchEdge, PatchNode, SlotPatch
from holdfast.doors.envelope.patch_rules import needs_rejected_edge
from holdfast.doors.envelope.tables import PinnedTable, Tables
from holdfast.doors.literals import moment, quoted
from holdfast.graph.envelope import (
    ACTION_CALL,
    LONGEST_ID,
    POLICY_CALL,
    PORTS,
    REJECTED,
    RULE_CALL,
    SlotPlace,
    port_id,
    user_id,
)
from holdfast.graph.model import Child, Edge, Node, Wait
from holdfast.graph.weaving import Filling
from holdfast.graph.windows import strictest
from holdfast.payloads import hash_json


class Lowered(msgspec.Struct, frozen=True):
    """The fillings of the slots, with the index of each edge in its patch; None: it was added."""

    fillings: dict[str, Filling]
    edges: dict[str, tuple[str, int | None]]
    tables: dict[str, PinnedTable]


def lower_patch(
    contract: ContractDefinition, patch: PatchDefinition, slots: dict[str, SlotPlace], tables: Tables
) -> Lowered:
    lowered = Lowered({}, {}, {})
    for name, steps in sorted(patch.slots.items()):
        if not steps.nodes and not steps.edges:
            continue
        writer = _Writer(contract, steps, slots[name], tables)
        for edge, index in writer.edges():
            lowered.edges[edge.id] = (name, index)
            writer.made.append(edge)
        nodes = tuple(sorted(writer.nodes(), key=lambda node: node.id))
        edges = tuple(sorted(writer.made, key=lambda edge: edge.id))
        lowered.fillings[name] = Filling(nodes=nodes, edges=edges, window=steps.window)
        lowered.tables.update(writer.pinned)
    return lowered


class _Writer:
    def __init__(self, contract: ContractDefinition, steps: SlotPatch, slot: SlotPlace, tables: Tables) -> None:
        self.actions = {action.name: action for action in contract.actions}
        self.steps = steps
        self.slot = slot
        self.tables = tables
        self.window = strictest(slot.window, steps.window)
        self.pinned: dict[str, PinnedTable] = {}
        self.made: list[Edge] = []

    # --- nodes ---

    def nodes(self) -> Iterator[Node]:
        for step in self.steps.nodes:
            about = {"name": step.name, "description": step.about}
            yield Node(
                id=user_id(self.slot.name, step.id),
                kind=step.kind,
                slot=self.slot.name,
                edit_window=strictest(self.window, step.window),
                stable=self.slot.stable,
                metadata={key: value for key, value in about.items() if value is not None},
                **_FIELDS[step.kind](self, step),
            )

    def plain(self, step: PatchNode) -> dict[str, Any]:
        return {}

    def join(self, step: PatchNode) -> dict[str, Any]:
        return {"mode": step.mode}

    def script(self, step: PatchNode) -> dict[str, Any]:
        return {"input": _sorted(step.sets), "config": {"output_keys": sorted(step.sets or {})}}

    def rule(self, step: PatchNode) -> dict[str, Any]:
        table = self.tables.find(step.table or "", step.table_version)
        assert table is not None, "checked: PATCH_TABLE_UNKNOWN"
        self.pinned[f"{table.name}@{table.version}"] = table
        return {"handler": RULE_CALL, "config": {"table": table.name, "version": table.version, "hash": table.hash}}

    def action(self, step: PatchNode) -> dict[str, Any]:
        action = self.actions[step.action or ""]
        config = {"action": action.name, "run_as": step.run_as or action.run_as}
        return {"handler": ACTION_CALL, "input": _sorted(step.payload or {}), "config": config}

    def policy_gate(self, step: PatchNode) -> dict[str, Any]:
        demanded = {"capability": step.capability, "when": step.when}
        config = {key: value for key, value in demanded.items() if value is not None}
        return {"handler": POLICY_CALL, "config": config}

    def approval(self, step: PatchNode) -> dict[str, Any]:
        asked = step.approvers
        assert asked is not None, "checked: PATCH_FIELD_MISSING"
        return {
            "form": step.form,
            "due": step.due,
            "roles": (asked.role,) if asked.role is not None else (),
            "assignee": asked.expression if asked.user is None else quoted(asked.user),
        }

    def wait_timer(self, step: PatchNode) -> dict[str, Any]:
        until = None if step.until is None else moment(step.until)
        return {"delay": step.delay, "until": until, "cron": step.cron, "timezone": step.timezone}

    def wait_event(self, step: PatchNode) -> dict[str, Any]:
        return {"wait": Wait(event=step.event or "", key=step.key), "deadline": step.deadline}

    def webhook_out(self, step: PatchNode) -> dict[str, Any]:
        config = {"url": step.url, "headers": step.headers, "secret": step.secret}
        return {
            "handler": "webhook",
            "input": _sorted(step.payload),
            "awaits": step.awaits,
            "config": {key: value for key, value in config.items() if value is not None},
        }

    def notification(self, step: PatchNode) -> dict[str, Any]:
        to = {} if step.to is None else {"to": step.to}
        config = {"subject": step.subject, "text": step.text}
        return {
            "handler": step.channel,
            "input": _sorted({**(step.payload or {}), **to}),
            "config": {key: value for key, value in config.items() if value is not None},
        }

    def sub_flow(self, step: PatchNode) -> dict[str, Any]:
        child = Child(flow=step.flow or "", version=step.flow_version)
        return {"child": child, "input": _sorted(step.payload), "deadline": step.deadline}

    # --- edges ---

    def edges(self) -> Iterator[tuple[Edge, int | None]]:
        alike: defaultdict[str, int] = defaultdict(int)
        for index, edge in sorted(enumerate(self.steps.edges), key=lambda each: _content(each[1])):
            id = self._edge_id(edge)
            alike[id] += 1
            yield self._edge(edge, id if alike[id] == 1 else f"{id}#{alike[id]}"), index
        events: defaultdict[str, set[str]] = defaultdict(set)
        for edge in self.steps.edges:
            events[edge.source].add(edge.on)
        for step in self.steps.nodes:
            if needs_rejected_edge(step.kind, events[step.id]):
                edge = PatchEdge(source=step.id, target=REJECTED, on=REJECTED)
                yield self._edge(edge, self._edge_id(edge)), None

    def _edge(self, edge: PatchEdge, id: str) -> Edge:
        return Edge(
            id=id,
            source=self._end(edge.source),
            target=self._end(edge.target),
            on=edge.on,
            when=edge.when,
            priority=edge.priority,
            label=edge.label,
            provenance=self.slot.name,
        )

    def _end(self, name: str) -> str:
        return port_id(self.slot.name, name) if name in PORTS else user_id(self.slot.name, name)

    def _edge_id(self, edge: PatchEdge) -> str:
        event = "" if edge.on == "completed" else f":{edge.on}"
        id = user_id(self.slot.name, f"{edge.source}{event}>{edge.target}")
        # A number for edges that look alike must fit as well.
        return id if len(id.encode()) <= LONGEST_ID - 6 else user_id(self.slot.name, f"#{hash_json(id)[:32]}")


def _content(edge: PatchEdge) -> tuple[str, str, str, int, str]:
    """Sort edges by their content: their order in the patch has no meaning."""
    return (edge.source, edge.on, edge.target, edge.priority, edge.when or "")


def _sorted(mapping: dict[str, str] | None) -> dict[str, str] | None:
    return None if mapping is None else dict(sorted(mapping.items()))


_FIELDS: Final[dict[str, Callable[[_Writer, PatchNode], dict[str, Any]]]] = {
    "condition": _Writer.plain,
    "split": _Writer.plain,
    "join": _Writer.join,
    "script": _Writer.script,
    "rule": _Writer.rule,
    "action": _Writer.action,
    "policy_gate": _Writer.policy_gate,
    "approval": _Writer.approval,
    "wait_timer": _Writer.wait_timer,
    "wait_event": _Writer.wait_event,
    "webhook_out": _Writer.webhook_out,
    "notification": _Writer.notification,
    "sub_flow": _Writer.sub_flow,
}
