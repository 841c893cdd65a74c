"""A durable workflow engine for teams whose truth lives in PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.compiler.graph import Graph
    from holdfast.compiler.printed import code_of, mermaid_of, picture_of
    from holdfast.compiler.steps import load_steps
    from holdfast.definitions.flow import Flow
    from holdfast.definitions.path import Branch
    from holdfast.runtime.context import Context
    from holdfast.runtime.dead_letters import LetterFilter
    from holdfast.runtime.effects.delivery import EffectFailed
    from holdfast.runtime.effects.options import EffectOptions
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.handlers import DoNotRetry
    from holdfast.runtime.hooks.audit import Audit
    from holdfast.runtime.hooks.metrics import Metrics
    from holdfast.runtime.hooks.middleware import Middleware
    from holdfast.runtime.hooks.notices import FlowContext
    from holdfast.runtime.hooks.rate_limit import RateLimit
    from holdfast.runtime.hooks.validate import Validate
    from holdfast.runtime.loop import run
    from holdfast.runtime.retention import Retention
    from holdfast.runtime.sync import SyncEngine

__all__ = [
    "Audit",
    "Branch",
    "Context",
    "DoNotRetry",
    "EffectFailed",
    "EffectOptions",
    "Engine",
    "Flow",
    "FlowContext",
    "Graph",
    "LetterFilter",
    "Metrics",
    "Middleware",
    "RateLimit",
    "Retention",
    "SyncEngine",
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
    "Branch": "holdfast.definitions.path",
    "Context": "holdfast.runtime.context",
    "DoNotRetry": "holdfast.runtime.handlers",
    "EffectFailed": "holdfast.runtime.effects.delivery",
    "EffectOptions": "holdfast.runtime.effects.options",
    "Engine": "holdfast.runtime.engine",
    "Flow": "holdfast.definitions.flow",
    "FlowContext": "holdfast.runtime.hooks.notices",
    "Graph": "holdfast.compiler.graph",
    "LetterFilter": "holdfast.runtime.dead_letters",
    "Metrics": "holdfast.runtime.hooks.metrics",
    "Middleware": "holdfast.runtime.hooks.middleware",
    "RateLimit": "holdfast.runtime.hooks.rate_limit",
    "Retention": "holdfast.runtime.retention",
    "SyncEngine": "holdfast.runtime.sync",
    "Validate": "holdfast.runtime.hooks.validate",
    "code_of": "holdfast.compiler.printed",
    "load_steps": "holdfast.compiler.steps",
    "mermaid_of": "holdfast.compiler.printed",
    "picture_of": "holdfast.compiler.printed",
    "run": "holdfast.runtime.loop",
}


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `import holdfast` inside the package never goes round in circles."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
