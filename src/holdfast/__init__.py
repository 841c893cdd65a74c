"""A durable workflow engine for teams whose truth lives in PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.consumer.answers import Postpone, Trigger, Verdict
    from holdfast.doors.envelope.builder.contract import Contract
    from holdfast.doors.envelope.builder.patch import Fill, Patch
    from holdfast.doors.envelope.decision_tables.builder import DecisionTable
    from holdfast.doors.envelope.effective import compile_effective, compile_envelope
    from holdfast.doors.envelope.findings import Finding
    from holdfast.doors.envelope.reading.load import load_contracts
    from holdfast.doors.printed import code_of, mermaid_of, picture_of
    from holdfast.doors.saga.builder import Branch
    from holdfast.doors.saga.flow import Flow
    from holdfast.doors.saga.values import Retry, Undo
    from holdfast.doors.steps.load import load_steps
    from holdfast.graph.difference.compare import difference
    from holdfast.graph.difference.model import Difference
    from holdfast.graph.model import Graph
    from holdfast.runtime.commit.options import Options
    from holdfast.runtime.consumers.events import ConsumerEvent
    from holdfast.runtime.consumers.options import ConsumerOptions
    from holdfast.runtime.consumers.registry import Consumer
    from holdfast.runtime.effects.delivery import EffectFailed
    from holdfast.runtime.effects.options import EffectOptions
    from holdfast.runtime.effects.outbox import EffectPage
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.engine.consuming import DeliveryPage, Replay
    from holdfast.runtime.engine.sync import SyncEngine
    from holdfast.runtime.envelopes.contracts import ContractDocument, PublishedContract
    from holdfast.runtime.envelopes.drafts import Draft
    from holdfast.runtime.envelopes.patches import EffectiveDocument, PatchDocument, PublishedPatch
    from holdfast.runtime.envelopes.rebase import Rebased
    from holdfast.runtime.envelopes.script import Arrive, CallVerb, Decide, Edit, Elapse
    from holdfast.runtime.envelopes.simulated import Simulation
    from holdfast.runtime.envelopes.tables import PublishedTable, TableDocument
    from holdfast.runtime.hooks.audit import Audit
    from holdfast.runtime.hooks.metrics import Metrics
    from holdfast.runtime.hooks.middleware import Middleware
    from holdfast.runtime.hooks.notices import FlowContext
    from holdfast.runtime.hooks.rate_limit import RateLimit
    from holdfast.runtime.hooks.validate import Validate
    from holdfast.runtime.machines.description import MachineDescription
    from holdfast.runtime.machines.machine import Machine
    from holdfast.runtime.machines.triggers import TriggerResult
    from holdfast.runtime.ops.dead_letters import LetterFilter, LetterPage, Resolved
    from holdfast.runtime.ops.migration import Migration
    from holdfast.runtime.ops.rebuild import Rebuilt
    from holdfast.runtime.ops.retention import Retention
    from holdfast.runtime.ops.stuck import Reenqueued
    from holdfast.runtime.people.descriptor import Descriptor
    from holdfast.runtime.people.inbox import Inbox
    from holdfast.runtime.people.standing import Standing
    from holdfast.runtime.people.start_rules import Caller
    from holdfast.runtime.people.summaries import Summaries
    from holdfast.runtime.process.loop import run
    from holdfast.runtime.publishing import Published
    from holdfast.runtime.reads.search import InstanceFilter
    from holdfast.runtime.reads.statistics import FlowStatistics
    from holdfast.runtime.reads.views import Page
    from holdfast.runtime.telemetry.metrics import MetricsCollector, Stats
    from holdfast.runtime.worker.context import Context
    from holdfast.runtime.worker.handlers import DoNotRetry
    from holdfast.runtime.worker.worker import Worker
    from holdfast.store import embedded
    from holdfast.store.activities import Activity
    from holdfast.store.admin.dead_letters import LetterOfTenant
    from holdfast.store.admin.doctor import Report
    from holdfast.store.admin.repair import Stuck
    from holdfast.store.admin.upkeep import Upkeep
    from holdfast.store.consumers import ConsumerState, KnownConsumer
    from holdfast.store.contracts import ContractEvent, ContractVersion, PatchVersion
    from holdfast.store.dead_letters import DeadLetter
    from holdfast.store.decision_tables import TableVersion
    from holdfast.store.deliveries import Delivery
    from holdfast.store.effects import Effect
    from holdfast.store.machines import MachineInstance
    from holdfast.store.notices import Notice, NoticePage
    from holdfast.store.queue.workers import WorkerProcess
    from holdfast.store.reads.flows import FlowDocument, FlowVersion
    from holdfast.store.reads.instances import Event, Instance, Step
    from holdfast.store.reads.lifecycle import Lifecycle, LifecycleEntry, LifecycleInstance
    from holdfast.store.reads.runtimes import Runtime
    from holdfast.store.tasks import Task, TaskEvent

__all__ = [
    "Activity",
    "Arrive",
    "Audit",
    "Branch",
    "CallVerb",
    "Caller",
    "Client",
    "Consumer",
    "ConsumerEvent",
    "ConsumerOptions",
    "ConsumerState",
    "Context",
    "Contract",
    "ContractDocument",
    "ContractEvent",
    "ContractVersion",
    "DeadLetter",
    "Decide",
    "DecisionTable",
    "Delivery",
    "DeliveryPage",
    "Descriptor",
    "Difference",
    "DoNotRetry",
    "Draft",
    "Edit",
    "Effect",
    "EffectFailed",
    "EffectOptions",
    "EffectPage",
    "EffectiveDocument",
    "Elapse",
    "Engine",
    "Event",
    "Fill",
    "Finding",
    "Flow",
    "FlowContext",
    "FlowDocument",
    "FlowStatistics",
    "FlowVersion",
    "Graph",
    "Inbox",
    "Instance",
    "InstanceFilter",
    "KnownConsumer",
    "LetterFilter",
    "LetterOfTenant",
    "LetterPage",
    "Lifecycle",
    "LifecycleEntry",
    "LifecycleInstance",
    "Machine",
    "MachineDescription",
    "MachineInstance",
    "Metrics",
    "MetricsCollector",
    "Middleware",
    "Migration",
    "Notice",
    "NoticePage",
    "Options",
    "Page",
    "Patch",
    "PatchDocument",
    "PatchVersion",
    "Postpone",
    "Published",
    "PublishedContract",
    "PublishedPatch",
    "PublishedTable",
    "RateLimit",
    "Rebased",
    "Rebuilt",
    "Reenqueued",
    "Replay",
    "Report",
    "Resolved",
    "Retention",
    "Retry",
    "Runtime",
    "Simulation",
    "Standing",
    "Stats",
    "Step",
    "Stuck",
    "Summaries",
    "SyncEngine",
    "TableDocument",
    "TableVersion",
    "Task",
    "TaskEvent",
    "Trigger",
    "TriggerResult",
    "Undo",
    "Upkeep",
    "Validate",
    "Verdict",
    "Worker",
    "WorkerProcess",
    "__version__",
    "code_of",
    "compile_effective",
    "compile_envelope",
    "difference",
    "embedded",
    "load_contracts",
    "load_steps",
    "mermaid_of",
    "picture_of",
    "run",
]

_HOMES = {
    "Activity": "holdfast.store.activities",
    "Audit": "holdfast.runtime.hooks.audit",
    "Branch": "holdfast.doors.saga.builder",
    "Caller": "holdfast.runtime.people.start_rules",
    "Client": "holdfast.client",
    "Consumer": "holdfast.runtime.consumers.registry",
    "ConsumerEvent": "holdfast.runtime.consumers.events",
    "ConsumerOptions": "holdfast.runtime.consumers.options",
    "ConsumerState": "holdfast.store.consumers",
    "Context": "holdfast.runtime.worker.context",
    "Contract": "holdfast.doors.envelope.builder.contract",
    "DeadLetter": "holdfast.store.dead_letters",
    "DecisionTable": "holdfast.doors.envelope.decision_tables.builder",
    "Delivery": "holdfast.store.deliveries",
    "DeliveryPage": "holdfast.runtime.engine.consuming",
    "Descriptor": "holdfast.runtime.people.descriptor",
    "Difference": "holdfast.graph.difference.model",
    "DoNotRetry": "holdfast.runtime.worker.handlers",
    "Effect": "holdfast.store.effects",
    "EffectFailed": "holdfast.runtime.effects.delivery",
    "EffectOptions": "holdfast.runtime.effects.options",
    "EffectPage": "holdfast.runtime.effects.outbox",
    "Engine": "holdfast.runtime.engine",
    "Event": "holdfast.store.reads.instances",
    "Fill": "holdfast.doors.envelope.builder.patch",
    "Flow": "holdfast.doors.saga.flow",
    "FlowContext": "holdfast.runtime.hooks.notices",
    "FlowDocument": "holdfast.store.reads.flows",
    "FlowStatistics": "holdfast.runtime.reads.statistics",
    "FlowVersion": "holdfast.store.reads.flows",
    "Graph": "holdfast.graph.model",
    "Inbox": "holdfast.runtime.people.inbox",
    "Instance": "holdfast.store.reads.instances",
    "InstanceFilter": "holdfast.runtime.reads.search",
    "KnownConsumer": "holdfast.store.consumers",
    "LetterFilter": "holdfast.runtime.ops.dead_letters",
    "LetterOfTenant": "holdfast.store.admin.dead_letters",
    "LetterPage": "holdfast.runtime.ops.dead_letters",
    "Lifecycle": "holdfast.store.reads.lifecycle",
    "LifecycleEntry": "holdfast.store.reads.lifecycle",
    "LifecycleInstance": "holdfast.store.reads.lifecycle",
    "ContractDocument": "holdfast.runtime.envelopes.contracts",
    "PublishedContract": "holdfast.runtime.envelopes.contracts",
    "Draft": "holdfast.runtime.envelopes.drafts",
    "EffectiveDocument": "holdfast.runtime.envelopes.patches",
    "PatchDocument": "holdfast.runtime.envelopes.patches",
    "PublishedPatch": "holdfast.runtime.envelopes.patches",
    "Rebased": "holdfast.runtime.envelopes.rebase",
    "ContractEvent": "holdfast.store.contracts",
    "ContractVersion": "holdfast.store.contracts",
    "PatchVersion": "holdfast.store.contracts",
    "PublishedTable": "holdfast.runtime.envelopes.tables",
    "TableDocument": "holdfast.runtime.envelopes.tables",
    "TableVersion": "holdfast.store.decision_tables",
    "Finding": "holdfast.doors.envelope.findings",
    "Machine": "holdfast.runtime.machines.machine",
    "MachineDescription": "holdfast.runtime.machines.description",
    "MachineInstance": "holdfast.store.machines",
    "Metrics": "holdfast.runtime.hooks.metrics",
    "MetricsCollector": "holdfast.runtime.telemetry.metrics",
    "Middleware": "holdfast.runtime.hooks.middleware",
    "Migration": "holdfast.runtime.ops.migration",
    "Notice": "holdfast.store.notices",
    "NoticePage": "holdfast.store.notices",
    "Options": "holdfast.runtime.commit.options",
    "Page": "holdfast.runtime.reads.views",
    "Patch": "holdfast.doors.envelope.builder.patch",
    "Postpone": "holdfast.consumer.answers",
    "Published": "holdfast.runtime.publishing",
    "RateLimit": "holdfast.runtime.hooks.rate_limit",
    "Rebuilt": "holdfast.runtime.ops.rebuild",
    "Reenqueued": "holdfast.runtime.ops.stuck",
    "Replay": "holdfast.runtime.engine.consuming",
    "Report": "holdfast.store.admin.doctor",
    "Resolved": "holdfast.runtime.ops.dead_letters",
    "Retention": "holdfast.runtime.ops.retention",
    "Retry": "holdfast.doors.saga.values",
    "Runtime": "holdfast.store.reads.runtimes",
    "Simulation": "holdfast.runtime.envelopes.simulated",
    "Elapse": "holdfast.runtime.envelopes.script",
    "Edit": "holdfast.runtime.envelopes.script",
    "Decide": "holdfast.runtime.envelopes.script",
    "CallVerb": "holdfast.runtime.envelopes.script",
    "Arrive": "holdfast.runtime.envelopes.script",
    "Standing": "holdfast.runtime.people.standing",
    "Stats": "holdfast.runtime.telemetry.metrics",
    "Step": "holdfast.store.reads.instances",
    "Stuck": "holdfast.store.admin.repair",
    "Summaries": "holdfast.runtime.people.summaries",
    "SyncEngine": "holdfast.runtime.engine.sync",
    "Task": "holdfast.store.tasks",
    "TaskEvent": "holdfast.store.tasks",
    "Trigger": "holdfast.consumer.answers",
    "TriggerResult": "holdfast.runtime.machines.triggers",
    "Undo": "holdfast.doors.saga.values",
    "Upkeep": "holdfast.store.admin.upkeep",
    "Validate": "holdfast.runtime.hooks.validate",
    "Verdict": "holdfast.consumer.answers",
    "Worker": "holdfast.runtime.worker.worker",
    "WorkerProcess": "holdfast.store.queue.workers",
    "code_of": "holdfast.doors.printed",
    "compile_effective": "holdfast.doors.envelope.effective",
    "compile_envelope": "holdfast.doors.envelope.effective",
    "difference": "holdfast.graph.difference.compare",
    "load_contracts": "holdfast.doors.envelope.reading.load",
    "load_steps": "holdfast.doors.steps.load",
    "mermaid_of": "holdfast.doors.printed",
    "picture_of": "holdfast.doors.printed",
    "run": "holdfast.runtime.process.loop",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use: `import holdfast` inside the package never runs in circles."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "embedded":
        return import_module("holdfast.store.embedded")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
