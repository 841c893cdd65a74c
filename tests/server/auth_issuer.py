"""An issuer of tokens for tests: real keys, real signatures, and a real server for the document of its keys."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from starlette.requests import Request

from holdfast.server.auth.jwt_settings import JwtSettings

ISSUER = "https://issuer.example"
AUDIENCE = "holdfast"


def private_key(kid: str, kind: str = "RS256") -> Any:
    return _made(kid, kind)


@cache
def _made(kid: str, kind: str) -> Any:
    """One key per name, made once: RSA keys take their time."""
    if kind.startswith(("RS", "PS")):
        return rsa.generate_private_key(public_exponent=65537, key_size=1024 if kid == "short" else 2048)
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key({"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}[kind])


def public_pem(kid: str, kind: str = "RS256") -> str:
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return private_key(kid, kind).public_key().public_bytes(*form).decode()


def jwk(kid: str, kind: str = "RS256", /, **more: Any) -> dict[str, Any]:
    written = get_default_algorithms()[kind].to_jwk(private_key(kid, kind).public_key(), as_dict=True)
    return {**written, "kid": kid, "use": "sig", "key_ops": ["verify"], **more}


def document(*keys: dict[str, Any]) -> dict[str, Any]:
    return {"keys": list(keys)}


def claims(**changes: Any) -> dict[str, Any]:
    """Those of a good token; a change to None takes one out."""
    now = int(time.time())
    said = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 300, "nbf": now - 5, "iat": now - 5,
        "tenant_id": "acme", "partition_id": "eu", "roles": ["approver"], "capabilities": ["orders:approve:*"],
    }  # fmt: skip
    return {name: value for name, value in {**said, **changes}.items() if value is not None}


def token(kid: str = "one", kind: str = "RS256", header: dict[str, Any] | None = None, **changes: Any) -> str:
    return signed(claims(**changes), kid, kind, {"kid": kid, **(header or {})})


def signed(body: dict[str, Any], kid: str, kind: str, header: dict[str, Any]) -> str:
    """Any claims at all: what usually makes tokens refuses some."""
    return jwt.api_jws.encode(json.dumps(body).encode(), private_key(kid, kind), kind, headers={"typ": "JWT", **header})


def assembled(header: Any, payload: Any, signature: bytes = b"") -> str:
    """A token as nobody's library would make it."""
    return ".".join(_coded(part) for part in (header, payload, signature))


def _coded(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def settings(**changes: Any) -> JwtSettings:
    given = {"jwks": document(jwk("one")), **changes}
    if {"jwks_url", "key"} & changes.keys():
        del given["jwks"]
    return JwtSettings(**{"issuer": ISSUER, "audience": (AUDIENCE,), **given})


class KeyServer:
    """Serves what it is told to, and counts how often it was asked."""

    def __init__(self) -> None:
        self.body: bytes = b""
        self.status = 200
        self.fetches = 0
        self.url = ""

    def offer(self, *keys: dict[str, Any]) -> None:
        self.status, self.body = 200, json.dumps(document(*keys)).encode()


@contextmanager
def key_server() -> Iterator[KeyServer]:
    served = KeyServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.fetches += 1
            self.send_response(served.status)
            if 300 <= served.status < 400:
                self.send_header("location", f"{served.url}/elsewhere")
            self.send_header("content-length", str(len(served.body)))
            self.end_headers()
            self.wfile.write(served.body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}/keys"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def request(*headers: tuple[str, str], client: str | None = "127.0.0.1", host: str = "localhost:8080") -> Request:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (("host", host), *headers)]
    where = None if client is None else (client, 40_000)
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": raw, "client": where})
