"""Problem documents (RFC 9457): one form for every refusal, from every layer.

The status comes from the class of the error. The details of an error beyond its sentence are under `facts`, by name;
where several things can be wrong (a form, a definition), `errors` lists each with its place. An unexpected error says
nothing about itself: its story is in the log, found by `request_id`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, cast

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from holdfast.errors import DefinitionError, HoldfastError, InputInvalid, Unauthenticated
from holdfast.server.http.methods import allowed_methods
from holdfast.server.http.refusals import Invalid, RateLimited

MEDIA_TYPE: Final = "application/problem+json"
SCHEMA: Final = {"$ref": "#/components/schemas/Problem"}
_FRAMEWORK_CODES: Final = {404: "ROUTE_UNKNOWN", 405: "METHOD_NOT_ALLOWED"}
_UNEXPECTED: Final = "UNEXPECTED"
MOST_MISFITS: Final = 100  # enough to read, and a body may hold many
_TITLES: Final = {
    400: "The request cannot be read",
    404: "There is no such thing",
    405: "The route does not know this method",
    422: "The request does not fit what the route takes",
    500: "The server failed",
}


class Misfit(BaseModel):
    """One thing that is wrong, and where."""

    model_config = ConfigDict(extra="allow")

    place: str = Field(description="A path into the request or the definition, such as `body.input.amount`.")
    message: str
    code: str | None = None


class Problem(BaseModel):
    """The reason for which a request was refused."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "urn:holdfast:problem:workflow-not-active",
                "title": "The request contradicts what is already there",
                "status": 409,
                "detail": "The workflow is completed.",
                "code": "WORKFLOW_NOT_ACTIVE",
                "hint": "Start a new one.",
                "facts": {"status": "completed"},
                "instance": "/ui/workflows/0198c0de-0000-7000-8000-000000000001/advance",
                "request_id": "4f0c9f1a2b3c4d5e",
            }
        }
    )

    type: str = Field(description="A name for this kind of problem; it follows from `code`.")
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    code: str = Field(description="Never changes its meaning; see the list of errors.")
    hint: str = Field(description="What to do about it; may be empty.")
    instance: str = Field(description="The path that was asked for.")
    request_id: str
    errors: list[Misfit] | None = Field(default=None, description="Each thing that is wrong, if several can be.")
    facts: dict[str, Any] | None = Field(
        default=None,
        description="What programs may want to know of it, by name: `allowed`, `missing`, …; see the list of errors.",
    )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses=` of a route that may be refused with these statuses."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": SCHEMA}},
            "headers": _documented_headers(status),
        }
        for status in statuses
    }


def _documented_headers(status: int) -> dict[str, Any]:
    headers = {"X-Request-Id": {"schema": {"type": "string"}}}
    named = {
        401: ("WWW-Authenticate", "string"),
        405: ("Allow", "string"),
        429: ("Retry-After", "integer"),
        503: ("Retry-After", "integer"),
    }
    if status in named:
        name, kind = named[status]
        headers[name] = {"schema": {"type": kind}}
    return headers


def problem(scope: Scope, error: Exception) -> Response:
    """The answer to a request that failed with this error."""
    if isinstance(error, HoldfastError):
        return _answer(scope, error.http_status, _title(error), error.message, error.code, error.hint, error)
    if isinstance(error, RequestValidationError):
        return problem(scope, _invalid(error))
    if isinstance(error, HTTPException):
        status = error.status_code
        code = _FRAMEWORK_CODES.get(status, "REQUEST_INVALID" if status < 500 else _UNEXPECTED)
        answer = _answer(scope, status, _phrase(status), _sentence(scope, error), code, "", None)
        answer.headers.update(error.headers or {})
        if status == HTTPStatus.METHOD_NOT_ALLOWED and (allowed := allowed_methods(scope)):
            answer.headers["Allow"] = allowed
        return answer
    detail = "Something went wrong that was not the fault of the request."
    hint = "Try again; if it stays, ask whoever runs the server to look for this request id in the log."
    return _answer(scope, 500, _phrase(500), detail, _UNEXPECTED, hint, None)


def tell_problems(app: FastAPI) -> None:
    """Every exception of a route becomes such a document."""

    async def tell(request: Request, error: Exception) -> Response:
        return problem(request.scope, error)

    for kind in (HoldfastError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, tell)


def _answer(
    scope: Scope, status: int, title: str, detail: str, code: str, hint: str, error: HoldfastError | None
) -> Response:
    document: dict[str, Any] = {
        "type": f"urn:holdfast:problem:{code.lower().replace('_', '-')}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
        "hint": hint,
        "instance": scope.get("root_path", "") + scope["path"] if _is_mounted(scope) else scope["path"],
        "request_id": scope.get("state", {}).get("request_id", ""),
    }
    if error is not None and (errors := _misfits(error)):
        document["errors"] = errors
    if error is not None and status < 500 and error.detail:
        document["facts"] = msgspec.to_builtins(error.detail, enc_hook=str)
    body = msgspec.json.encode(_fit(document))
    return Response(body, status, media_type=MEDIA_TYPE, headers=_headers(status, error))


def _is_mounted(scope: Scope) -> bool:
    """ASGI says that `path` holds `root_path` as well; older hosts leave it out."""
    root = scope.get("root_path", "")
    return bool(root) and not scope["path"].startswith(root)


def _headers(status: int, error: HoldfastError | None) -> dict[str, str]:
    headers = {"Cache-Control": "no-store"}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = error.challenge
    if isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if status == 503:
        headers["Retry-After"] = "1"  # a database that changes its primary is back within seconds
    if status in (400, 413):
        headers["Connection"] = "close"  # where the body ends is not known, or it is not going to be read
    return headers


def _title(error: HoldfastError) -> str:
    return (type(error).__doc__ or "").strip().splitlines()[0].rstrip(".")


def _phrase(status: int) -> str:
    if status in _TITLES:
        return _TITLES[status]
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "The request was refused"


def _sentence(scope: Scope, error: HTTPException) -> str:
    if error.status_code == 404:
        return "No route has this path."
    if error.status_code == 405:
        return f"This path does not take {scope['method'][:20]}."
    return str(error.detail)


def _invalid(error: RequestValidationError) -> Invalid:
    misfits = tuple(
        {"place": ".".join(str(part) for part in found["loc"]), "message": str(found["msg"])}
        for found in islice(cast("Iterable[dict[str, Any]]", error.errors()), MOST_MISFITS)
    )
    first = misfits[0] if misfits else {"place": "request", "message": "is invalid"}
    return Invalid(f"{first['place']}: {first['message']}.", hint="See `errors` for the places.", errors=misfits)


def _misfits(error: HoldfastError) -> list[dict[str, Any]]:
    if isinstance(error, Invalid):
        return list(error.errors)
    found: Iterable[Any] = ()
    if isinstance(error, InputInvalid):
        found = error.misfits
    elif isinstance(error, DefinitionError):
        found = error.diagnostics
    return [_misfit(one) for one in found]


def _misfit(found: Any) -> dict[str, Any]:
    """Convert a misfit of any form: place and message first, the rest as it is."""
    known: Any = found._asdict() if hasattr(found, "_asdict") else msgspec.to_builtins(found, enc_hook=str)
    if not isinstance(known, dict):
        return {"place": "", "message": str(known)}
    plain = cast("dict[str, Any]", known)
    place = plain.pop("place", None) or plain.pop("path", None) or _place_in_file(plain)
    message = plain.pop("message", None) or plain.pop("problem", None) or ""
    return {"place": str(place), "message": str(message), **plain}


def _place_in_file(plain: dict[str, Any]) -> str:
    return f"{plain['file']}:{plain.get('line')}:{plain.get('column')}" if "file" in plain else ""


def _fit(value: Any) -> Any:
    """Text that came in halves must not break the answer that complains about it."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {str(_fit(str(key))): _fit(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_fit(item) for item in cast("list[Any]", value)]
    return value
