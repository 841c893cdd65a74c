"""Contracts and patches as data, however they were written: with a builder, in YAML, or read back from a source."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.graph.windows import Window

FieldType = Literal["string", "number", "boolean", "time", "money", "list", "object"]
RunAs = Literal["actor", "system", "service_account"]


class DataField(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One field of the document. A change of a material one voids approvals."""

    name: str
    type: FieldType
    material: bool = True
    indexed: bool = False
    about: str | None = None


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A state of the document. The first one is where documents begin."""

    name: str
    window: Window = "editable"
    ends: bool = False  # entering it ends the instance
    about: str | None = None


class Verb(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A transition that a person calls."""

    name: str
    source: str
    target: str
    capability: str | None = None
    when: str | None = None
    about: str | None = None


class Gate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A transition of the engine's own: tokens pass it, and no person calls it."""

    name: str
    source: str
    target: str
    approvals: int = 0  # the least number of approvals it demands of every organisation
    about: str | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A change of the document that is no transition: people may call it, and so may nodes of a patch."""

    name: str
    sets: tuple[str, ...] = ()  # the fields it may change; empty: every field
    capability: str | None = None
    run_as: RunAs = "actor"
    about: str | None = None


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A condition on what people do: they need the capability, and the expression must hold."""

    name: str
    on: tuple[str, ...] = ()  # verbs and actions; empty: all of them
    capability: str | None = None
    when: str | None = None


class Slot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A place where organisations add steps: between a state and a gate, a state and a verb, or a gate and a state."""

    name: str
    entry: str
    exit: str
    rejected: str | None = None  # the gate behind the port `rejected`; None: the only other gate of the entry
    window: Window | None = None  # None: that of the state it lies in
    stable: bool = False  # a material edit meanwhile amends the document


class Amendment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The amendment of a document."""

    states: tuple[str, ...] = ()  # where the verb `amend` is offered: a new document takes the place of the old one
    drift: str | None = None  # the state to which a material edit in a stable slot leads; None: such an edit is refused


class ContractDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finished contract."""

    type: str  # of the documents
    version: int = 1
    fields: tuple[DataField, ...] = ()
    states: tuple[State, ...] = ()
    verbs: tuple[Verb, ...] = ()
    gates: tuple[Gate, ...] = ()
    actions: tuple[Action, ...] = ()
    policies: tuple[PolicyRule, ...] = ()
    slots: tuple[Slot, ...] = ()
    amendment: Amendment | None = None
    about: str | None = None


class Approvers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The person or the role that is asked: exactly one of the fields."""

    user: str | None = None
    role: str | None = None
    expression: str | None = None


class PatchNode(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A node of a patch. Which fields it takes depends on its kind (`format.py`)."""

    id: str  # a name of its own in its slot; stored as usr:<slot>:<name>
    kind: str
    name: str | None = None  # what people see
    about: str | None = None
    window: Window | None = None
    mode: str | None = None  # join: all | any
    sets: dict[str, str] | None = None  # script: name → expression
    table: str | None = None  # rule: the decision table, by name
    table_version: int | None = None  # rule: None: the newest one when the patch is compiled
    action: str | None = None  # action: of the contract
    payload: dict[str, str] | None = None  # action, webhook_out, notification, sub_flow: name → expression
    run_as: RunAs | None = None  # action; None: as the contract says
    approvers: Approvers | None = None  # approval
    form: dict[str, Any] | None = None  # approval
    due: float | None = None  # approval: seconds
    delay: float | None = None  # wait_timer: seconds
    until: str | None = None  # wait_timer: an expression
    cron: str | None = None  # wait_timer
    timezone: str | None = None  # wait_timer
    event: str | None = None  # wait_event
    key: str | None = None  # wait_event: an expression
    deadline: float | None = None  # wait_event, sub_flow: seconds until the edge on `timeout`
    url: str | None = None  # webhook_out
    headers: dict[str, str] | None = None  # webhook_out
    secret: str | None = None  # webhook_out: the name of the secret that signs
    channel: str | None = None  # notification: mail | log | any kind of effect
    to: str | None = None  # notification: an expression
    subject: str | None = None  # notification
    text: str | None = None  # notification
    awaits: bool = False  # webhook_out: wait for the receipt
    flow: str | None = None  # sub_flow
    flow_version: int | None = None  # sub_flow
    capability: str | None = None  # policy_gate
    when: str | None = None  # policy_gate: an expression


class PatchEdge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An edge of a patch. `in`, `out` and `rejected` are the ports of its slot."""

    source: str
    target: str
    on: str = "completed"
    when: str | None = None
    priority: int = 0
    label: str | None = None


class SlotPatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The steps that fill one slot."""

    nodes: tuple[PatchNode, ...] = ()
    edges: tuple[PatchEdge, ...] = ()
    window: Window | None = None  # stricter than the slot's own, or None
    entry_mode: str | None = None  # serial | branch: what the edges from `in` must amount to
    exit_mode: str | None = None  # single | join: what the edges to `out` must amount to


class PatchDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finished patch: an organisation's way of working, within one version of a contract."""

    contract: str  # the type of the documents
    envelope: int  # the version of the contract it was written for
    version: int = 1  # numbered by the engine, per organisation and type
    slots: dict[str, SlotPatch] = {}
    policies: tuple[PolicyRule, ...] = ()  # beside those of the contract, never instead of them
    about: str | None = None
