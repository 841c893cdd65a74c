"""A durable workflow engine for teams whose truth lives in PostgreSQL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.compiler.graph import Graph
    from holdfast.definitions.flow import Flow
    from holdfast.runtime.context import Context
    from holdfast.runtime.dead_letters import LetterFilter
    from holdfast.runtime.effects.delivery import EffectFailed
    from holdfast.runtime.effects.options import EffectOptions
    from holdfast.runtime.engine import Engine
    from holdfast.runtime.handlers import DoNotRetry
    from holdfast.runtime.retention import Retention
    from holdfast.runtime.sync import SyncEngine

__all__ = [
    "Context",
    "DoNotRetry",
    "EffectFailed",
    "EffectOptions",
    "Engine",
    "Flow",
    "Graph",
    "LetterFilter",
    "Retention",
    "SyncEngine",
    "__version__",
]

_HOMES = {
    "Context": "holdfast.runtime.context",
    "DoNotRetry": "holdfast.runtime.handlers",
    "EffectFailed": "holdfast.runtime.effects.delivery",
    "EffectOptions": "holdfast.runtime.effects.options",
    "Engine": "holdfast.runtime.engine",
    "Flow": "holdfast.definitions.flow",
    "Graph": "holdfast.compiler.graph",
    "LetterFilter": "holdfast.runtime.dead_letters",
    "Retention": "holdfast.runtime.retention",
    "SyncEngine": "holdfast.runtime.sync",
}


def __getattr__(name: str) -> Any:
    """Public names load on first use, so that `import holdfast` inside the package never goes round in circles."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
