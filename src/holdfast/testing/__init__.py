"""What a test suite needs: databases that cost little and a clock that can be moved. Not for production.

The names load on first use: pytest imports this package in every session, also in those that never ask for a database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.testing.clock import advance, install, shift
    from holdfast.testing.database import Database, copied_database
    from holdfast.testing.server import running_server

__all__ = ["Database", "advance", "copied_database", "install", "running_server", "shift"]

_HOMES: Final = {
    "advance": "clock",
    "install": "clock",
    "shift": "clock",
    "Database": "database",
    "copied_database": "database",
    "running_server": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
