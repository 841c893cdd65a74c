"""A real PostgreSQL in a directory of its own: `start`, `status`, `revive`, `stop`."""

from holdfast.store.embedded.server import Server, default_directory, revive, start, status, stop

__all__ = ["Server", "default_directory", "revive", "start", "status", "stop"]
