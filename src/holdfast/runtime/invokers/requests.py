"""Conversion of a step's input to the request of an operation: every key has a place, or the request is not sent."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import msgspec

from holdfast.payloads import encode
from holdfast.runtime.invokers.errors import shown, unfit, unsupported
from holdfast.runtime.invokers.operations import Body, Operation
from holdfast.runtime.invokers.parameters import Parameter, check_path, in_cookie, in_header, in_path, in_query
from holdfast.runtime.schemas.schemas import told

BODY: Final = "body"
MOST_TARGET: Final = 16_000  # characters of a path with its query
_HOLE: Final = re.compile(r"\{([^{}]*)\}")


class Request(msgspec.Struct):
    """Request to send; credentials are added to it last."""

    method: str
    path: str
    query: list[tuple[str, str]]  # percent-encoded
    headers: dict[str, str]
    cookies: list[str]
    content: bytes | None

    @property
    def target(self) -> str:
        return self.path + ("?" + "&".join(f"{name}={value}" for name, value in self.query) if self.query else "")


def build_request(operation: Operation, data: Any) -> Request:
    if data is not None and not isinstance(data, dict):
        raise unfit(f"The input of {operation.title} is not an object.")
    given = cast("dict[str, Any]", data or {})
    values = _values(operation, given)
    path, query, headers, cookies = operation.path, list[tuple[str, str]](), dict[str, str](), list[str]()
    filled: dict[str, str] = {}
    for parameter, value in values:
        match parameter.place:
            case "path":
                filled[parameter.name] = in_path(parameter, value)
            case "query":
                query += in_query(parameter, value)
            case "header":
                headers[parameter.name.lower()] = in_header(parameter, value)
            case _:
                cookies.append(in_cookie(parameter, value))
    path = _HOLE.sub(lambda hole: filled[hole[1]], operation.path)
    check_path(path)
    names = {parameter.name for parameter in operation.parameters}
    content = _content(operation, {key: value for key, value in given.items() if key not in names})
    if content is not None and operation.body is not None:
        headers["content-type"] = operation.body.media_type or ""
    request = Request(operation.method, path, query, headers, cookies, content)
    if len(request.target) > MOST_TARGET:
        raise unfit(f"The address of {operation.title} is longer than {MOST_TARGET} characters.")
    return request


def _values(operation: Operation, given: dict[str, Any]) -> list[tuple[Parameter, Any]]:
    """Pair parameters with their values. A null counts as absent: a mapping of a missing value gives null."""
    found: list[tuple[Parameter, Any]] = []
    for parameter in operation.parameters:
        value = given.get(parameter.name)
        if value is None or (parameter.required and value == []):
            if parameter.required:
                raise unfit(f"{operation.title} needs {parameter.label}, and the input does not have it.")
            continue
        parameter.validate(value)
        found.append((parameter, value))
    return found


def _content(operation: Operation, rest: dict[str, Any]) -> bytes | None:
    body = operation.body
    if body is None:
        if rest:
            raise unfit(_unknown(operation, rest))
        return None
    if not rest:
        if body.required:
            raise unfit(f"{operation.title} needs a body, and the input has nothing for it.")
        return None
    if body.media_type is None:
        raise unsupported(f"The body of {operation.title} is not JSON, and nothing else can be sent.")
    return _json(operation, body, _whole(operation, body, rest))


def _whole(operation: Operation, body: Body, rest: dict[str, Any]) -> Any:
    """The whole body, if the input gives it as `body` and the body has no member of this name."""
    if BODY not in rest or BODY in body.names:
        return rest
    others = {key: value for key, value in rest.items() if key != BODY}
    if others:
        raise unfit(_unknown(operation, others))
    return rest[BODY]


def _json(operation: Operation, body: Body, value: Any) -> bytes:
    misfits = body.check(value) if body.check is not None else []
    if misfits:
        raise unfit(f"The body of {operation.title} does not fit: {told(misfits)}")
    return encode(value, f"the body of {operation.title}")


def _unknown(operation: Operation, rest: dict[str, Any]) -> str:
    known = ", ".join(parameter.name for parameter in operation.parameters) or "nothing"
    return f"{operation.title} has no place for {shown(sorted(rest)[0])}; it takes: {known[:300]}."
