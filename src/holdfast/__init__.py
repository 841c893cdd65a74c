"""A durable workflow engine for teams whose truth lives in PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.doors.printed import code_of, mermaid_of, picture_of
    from holdfast.doors.saga.builder import Branch
    from holdfast.doors.saga.flow import Flow
    from holdfast.doors.saga.values import Retry, Undo
    from holdfast.doors.steps.load import load_steps
    from holdfast.graph.model import Graph
    from holdfast.runtime.effects.delivery import EffectFailed
    from holdfast.runtime.effects.options import EffectOptions
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.engine.sync import SyncEngine
    from holdfast.runtime.hooks.audit import Audit
    from holdfast.runtime.hooks.metrics import Metrics
    from holdfast.runtime.hooks.middleware import Middleware
    from holdfast.runtime.hooks.notices import FlowContext
    from holdfast.runtime.hooks.rate_limit import RateLimit
    from holdfast.runtime.hooks.validate import Validate
    from holdfast.runtime.machines.machine import Machine
    from holdfast.runtime.ops.dead_letters import LetterFilter
    from holdfast.runtime.ops.retention import Retention
    from holdfast.runtime.process.loop import run
    from holdfast.runtime.reads.search import InstanceFilter
    from holdfast.runtime.worker.context import Context
    from holdfast.runtime.worker.handlers import DoNotRetry

__all__ = [
    "Audit",
    "Branch",
    "Client",
    "Context",
    "DoNotRetry",
    "EffectFailed",
    "EffectOptions",
    "Engine",
    "Flow",
    "FlowContext",
    "Graph",
    "InstanceFilter",
    "LetterFilter",
    "Machine",
    "Metrics",
    "Middleware",
    "RateLimit",
    "Retention",
    "Retry",
    "SyncEngine",
    "Undo",
    "Validate",
    "__version__",
    "code_of",
    "load_steps",
    "mermaid_of",
    "picture_of",
    "run",
]

_HOMES = {
    "Audit": "holdfast.runtime.hooks.audit",
    "Branch": "holdfast.doors.saga.builder",
    "Client": "holdfast.client",
    "Context": "holdfast.runtime.worker.context",
    "DoNotRetry": "holdfast.runtime.worker.handlers",
    "EffectFailed": "holdfast.runtime.effects.delivery",
    "EffectOptions": "holdfast.runtime.effects.options",
    "Engine": "holdfast.runtime.engine",
    "Flow": "holdfast.doors.saga.flow",
    "FlowContext": "holdfast.runtime.hooks.notices",
    "Graph": "holdfast.graph.model",
    "InstanceFilter": "holdfast.runtime.reads.search",
    "LetterFilter": "holdfast.runtime.ops.dead_letters",
    "Machine": "holdfast.runtime.machines.machine",
    "Metrics": "holdfast.runtime.hooks.metrics",
    "Middleware": "holdfast.runtime.hooks.middleware",
    "RateLimit": "holdfast.runtime.hooks.rate_limit",
    "Retention": "holdfast.runtime.ops.retention",
    "Retry": "holdfast.doors.saga.values",
    "SyncEngine": "holdfast.runtime.engine.sync",
    "Undo": "holdfast.doors.saga.values",
    "Validate": "holdfast.runtime.hooks.validate",
    "code_of": "holdfast.doors.printed",
    "load_steps": "holdfast.doors.steps.load",
    "mermaid_of": "holdfast.doors.printed",
    "picture_of": "holdfast.doors.printed",
    "run": "holdfast.runtime.process.loop",
}


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `import holdfast` inside the package never goes round in circles."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
