"""Names of a contract that mean something already."""

from __future__ import annotations

from typing import Final

CALLS: Final = frozenset({"create", "update", "amend"})  # what can be done with every document
PORTS: Final = frozenset({"in", "out", "rejected"})
NAMESPACES: Final = frozenset({"sys", "usr"})
EVENTS: Final = frozenset({"completed", "error", "timeout", "approved"})

RESERVED: Final[dict[str, frozenset[str]]] = {
    "fields": frozenset({"id", "version", "state"}),  # of every document
    "states": NAMESPACES,
    "verbs": CALLS | PORTS | NAMESPACES | EVENTS,
    "gates": CALLS | PORTS | NAMESPACES | EVENTS,
    "actions": CALLS | PORTS | NAMESPACES | EVENTS,
    "slots": PORTS | NAMESPACES,
    "policies": frozenset(),
}
