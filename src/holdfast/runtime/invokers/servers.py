"""Address of a service: the operator's setting, or else the document's own, which is trusted less.

An address the operator gives may be anything, private networks included. One that only the document gives must be
https, or on this machine: else the author of the document decides over the secrets sent in the clear, and their target.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import DefinitionError
from holdfast.runtime.invokers.documents import Document, Node

_PORTS: Final = {"http": 80, "https": 443}
_HINT: Final = "Pass base_url=."


class Server(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    port: int
    path: str  # without a slash at its end

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def is_local(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def find_server(base_url: str | None, document: Document) -> Server:
    if base_url is not None:
        return _read(base_url, "base_url")
    server = _read(_from_document(document), "The server of the document")
    if server.scheme != "https" and not server.is_local:
        raise _unusable("The server of the document is not https.", "Pass base_url= if you mean to use it.")
    return server


def _from_document(document: Document) -> str:
    servers: Any = document.root.get("servers")
    if not isinstance(servers, list) or not servers:
        raise _unusable("The document does not say where its service is.", _HINT)
    server = document.part(cast("list[Any]", servers)[0], "A server")
    url = server.get("url")
    if not isinstance(url, str):
        raise _unusable("The server of the document has no url.", _HINT)
    for name, variable in cast("Node", server.get("variables") or {}).items():
        url = url.replace("{" + name + "}", str(document.part(variable, "A variable").get("default", "")))
    return url


def _read(url: str, what: str) -> Server:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _unusable(f"{what} cannot be read.", _HINT) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise _unusable(f"{what} is no http or https address.", "Write it like https://host/v1.")
    if "@" in parts.netloc:
        raise _unusable(f"{what} carries a user or password.", "Use auth= with a reference to the secret.")
    unfit = any(character in url for character in "?#\\{}") or not url.isascii() or not url.isprintable() or " " in url
    if unfit:
        raise _unusable(f"{what} has a query, a fragment, or characters an address does not have.", _HINT)
    return Server(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def _unusable(message: str, hint: str) -> DefinitionError:
    return DefinitionError(message, code="OPENAPI_SERVER_INVALID", hint=hint)
