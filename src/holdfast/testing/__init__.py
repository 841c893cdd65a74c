"""Tools for test suites: databases that cost little and a clock that can be moved. Not for production.

The names load on first use: pytest imports this package in every session, also in those that never need a database.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.testing.clock import advance, install, shift
    from holdfast.testing.database import Database, copied_database
    from holdfast.testing.failpoints import failpoint, install_failpoints
    from holdfast.testing.server import running_server

__all__ = [
    "Database", "advance", "copied_database", "failpoint", "install", "install_failpoints", "running_server", "shift",
]  # fmt: skip

_HOMES: Final = {
    "advance": "clock",
    "install": "clock",
    "shift": "clock",
    "Database": "database",
    "copied_database": "database",
    "failpoint": "failpoints",
    "install_failpoints": "failpoints",
    "running_server": "server",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
