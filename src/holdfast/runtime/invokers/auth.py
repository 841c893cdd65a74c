"""Credentials by reference: the schemes of a document, the source of their secrets, and their concealment.

A secret is never written down, only named: `env:NAME`, or a function of the organisation that gives it. It is looked up
for each call, so that a rotated one counts at once, and hidden in every stored or shown trace of the call.
"""

from __future__ import annotations

import base64
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from holdfast.errors import DefinitionError
from holdfast.runtime.effects.secrets import Secrets
from holdfast.runtime.invokers.documents import Document
from holdfast.runtime.invokers.errors import CallFailed, CallRefused, shown
from holdfast.runtime.invokers.operations import OURS, TOKEN, Operation
from holdfast.runtime.invokers.parameters import cookie_value, header_value, is_header
from holdfast.runtime.invokers.requests import Request

Secret = str | Callable[[str], str | Awaitable[str | None] | None]
Auth = Secret | Mapping[str, Secret]

ENV: Final = "env:"
_DEFAULT: Final = "bearer"  # of a document that names no scheme


class Scheme(msgspec.Struct, frozen=True):
    kind: str  # bearer | basic | header | query | cookie
    name: str = ""


class Revealed:
    """The secrets of one call, to be hidden afterwards."""

    def __init__(self, org: str) -> None:
        self._values: dict[str, str] = {}
        self._secrets = Secrets(lambda _, name: self._values[name], org)
        self.org = org

    def add(self, value: str) -> None:
        name = f"s{len(self._values)}"
        self._values[name] = value
        self._secrets.find(name)

    def hide(self, text: str) -> str:
        return self._secrets.hide(text)

    async def look_up(self, secret: Secret, whose: str) -> str:
        try:
            value: Any = os.environ.get(secret.removeprefix(ENV)) if isinstance(secret, str) else secret(self.org)
            if inspect.isawaitable(value):
                value = await value
        except Exception as failure:  # its words may hold the secret
            raise CallFailed(
                "SECRET_MISSING", f"The secret of {whose} failed to load: {type(failure).__name__}."
            ) from None
        if not value or not isinstance(value, str):
            raise CallFailed("SECRET_MISSING", f"The secret of {whose} is not set in this process.")
        self.add(value)
        return value


class Credentials:
    """Secrets by scheme, and headers the operator wants on every call."""

    def __init__(self, schemes: dict[str, Scheme], secrets: dict[str, Secret], headers: dict[str, Secret]) -> None:
        self._schemes = schemes
        self._secrets = secrets
        self._headers = headers

    async def apply(self, operation: Operation, request: Request, revealed: Revealed) -> None:
        for name, given in self._headers.items():
            value = await revealed.look_up(given, f"the header {name}") if _is_reference(given) else str(given)
            request.headers[name] = _fit(header_value, value, f"the header {name}")
        for name in self._wanted(operation):
            value = await revealed.look_up(self._secrets[name], f"the scheme {shown(name)}")
            _add(self._schemes[name], value, request, revealed)

    def _wanted(self, operation: Operation) -> tuple[str, ...]:
        """The first alternative that can be met; one that asks for nothing only if no other can."""
        if operation.security is None:
            return tuple(self._secrets)[:1]
        fitting = [names for names in operation.security if all(name in self._secrets for name in names)]
        return next((names for names in fitting if names), ())


def read_credentials(document: Document, auth: Auth | None, headers: Mapping[str, Secret] | None) -> Credentials:
    schemes = _schemes(document)
    secrets = _secrets(schemes, auth)
    if not schemes and secrets:
        schemes = {_DEFAULT: Scheme("bearer")}
    for name, secret in secrets.items():
        if name not in schemes:
            raise _invalid(
                f"The document has no scheme {shown(name)} that can be used.",
                "Supported are bearer, basic, API keys, OAuth 2 and OpenID Connect with a token.",
            )
        if not _is_reference(secret):
            raise _invalid(f"The secret of {shown(name)} is not a reference.", "Pass env:NAME or a function.")
    return Credentials(schemes, secrets, _own_headers(headers or {}))


def _schemes(document: Document) -> dict[str, Scheme]:
    components = document.part(document.root.get("components") or {}, "`components`")
    found: dict[str, Scheme] = {}
    for name, item in document.part(components.get("securitySchemes") or {}, "`securitySchemes`").items():
        scheme = _scheme(document.part(item, f"The scheme {shown(name)}"))
        if scheme is not None:
            found[name] = scheme
    return found


def _scheme(given: dict[str, Any]) -> Scheme | None:
    kind, scheme = given.get("type"), str(given.get("scheme", "")).lower()
    if kind in ("oauth2", "openIdConnect") or (kind == "http" and scheme == "bearer"):
        return Scheme("bearer")
    if kind == "http" and scheme == "basic":
        return Scheme("basic")
    place, name = given.get("in"), given.get("name")
    if kind != "apiKey" or place not in ("header", "query", "cookie") or not isinstance(name, str):
        return None
    return Scheme(place, name) if TOKEN.fullmatch(name) or (place == "query" and name) else None


def _secrets(schemes: dict[str, Scheme], auth: Auth | None) -> dict[str, Secret]:
    if auth is None:
        return {}
    if isinstance(auth, Mapping):
        return dict(cast("Mapping[str, Secret]", auth))
    if len(schemes) > 1:
        raise _invalid(
            "The document has several schemes.", f"Pass auth={{scheme: secret}} for: {', '.join(sorted(schemes))}."
        )
    return {next(iter(schemes), _DEFAULT): auth}


def _own_headers(headers: Mapping[str, Secret]) -> dict[str, Secret]:
    found = {name.lower(): value for name, value in headers.items()}
    for name, value in found.items():
        if not TOKEN.fullmatch(name) or name in OURS - {"authorization"}:
            raise _invalid(f"{shown(name)} is not a header that can be set here.", "The engine sets it, or nobody can.")
        if not _is_reference(value) and not is_header(str(value)):
            raise _invalid(f"The header {name} has a value that cannot be sent.", "Use visible ASCII characters.")
    return found


def _add(scheme: Scheme, value: str, request: Request, revealed: Revealed) -> None:
    match scheme.kind:
        case "bearer":
            request.headers["authorization"] = "Bearer " + _fit(header_value, value, "the token")
        case "basic":
            revealed.add(value.partition(":")[2] or value)
            request.headers["authorization"] = "Basic " + base64.b64encode(value.encode()).decode()
        case "header":
            request.headers[scheme.name.lower()] = _fit(header_value, value, "the API key")
        case "query":
            request.query.append((quote(scheme.name, safe=""), quote(value, safe="")))
        case _:
            request.cookies.append(f"{scheme.name}={_fit(cookie_value, value, 'the API key')}")


def _fit(check: Callable[[str, str], str], value: str, what: str) -> str:
    """The message never shows the value."""
    try:
        return check(value, what)
    except CallRefused as unfit:
        raise CallFailed("SECRET_UNUSABLE", str(unfit)) from None


def _is_reference(secret: Any) -> bool:
    return callable(secret) or (isinstance(secret, str) and secret.startswith(ENV) and len(secret) > len(ENV))


def _invalid(message: str, hint: str) -> DefinitionError:
    return DefinitionError(message, code="OPENAPI_AUTH_INVALID", hint=hint)
