"""The description of the API, completed with what the framework does not know: problems and who may call."""

from __future__ import annotations

from typing import Any, Final, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast.server.http.problems import Problem

_SCHEMES: Final[dict[str, Any]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A JWT of a configured issuer, or an API key (`hf_…`).",
    },
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "An API key (`hf_…`)."},
}
_PUBLIC_TAGS: Final = {"health", "metrics"}


def describe(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(
                get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = openapi


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    schemas = components.setdefault("schemas", {})
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schema.pop("$defs", {}))
    schemas["Problem"] = schema
    for described in schemas.values():
        _restore_nulls(described)
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("x-reads", None)
            for parameter in operation.get("parameters", ()):
                _say_absent(parameter["schema"])
            if not _PUBLIC_TAGS & set(operation.get("tags", ())):
                operation["security"] = [{name: []} for name in _SCHEMES]
    return document


def _say_absent(schema: dict[str, Any]) -> None:
    """A parameter that may be left out cannot be null: on the wire there is no such value."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del schema["anyOf"]
        schema.update(choices[0])


def _restore_nulls(schema: dict[str, Any]) -> None:
    """Restore nulls in examples: the framework drops them, and the examples then lack required names."""
    for example in schema.get("examples", ()):
        if isinstance(example, dict):
            for name in schema.get("required", ()):
                cast("dict[str, Any]", example).setdefault(name, None)
