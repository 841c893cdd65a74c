"""Client of a server: the verbs of an engine, over HTTP."""

from holdfast.client.client import Client

__all__ = ["Client"]
