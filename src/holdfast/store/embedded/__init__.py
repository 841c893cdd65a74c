"""A real PostgreSQL in a directory of its own: `start`, `status`, `stop`."""

from holdfast.store.embedded.server import Server, default_directory, start, status, stop

__all__ = ["Server", "default_directory", "start", "status", "stop"]
