"""The one graph every door lowers to: its model, checks, expressions, compiler, hash and drawings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.graph.checks.check import check
    from holdfast.graph.compile import compile_graph
    from holdfast.graph.model import Edge, Graph, Node, load_graph

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "check",
    "compile_graph",
    "load_graph",
]

_HOMES = {
    "Edge": "model",
    "Graph": "model",
    "Node": "model",
    "check": "checks.check",
    "compile_graph": "compile",
    "load_graph": "model",
}


def __getattr__(name: str) -> Any:
    """Load public names on first use, so that one module of the package does not bring all of them."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
