"""Which methods a path takes. The framework names those of the first route it finds; several may share a path."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from starlette.types import Scope

_PARAMETER = re.compile(r"\\\{[^/{}]+\\\}")


def allowed_methods(scope: Scope) -> str | None:
    """For the header Allow; None for a path that the description of the API does not know."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    found = {method for pattern, methods in _table(scope["app"]) if pattern.fullmatch(path) for method in methods}
    return ", ".join(sorted(found)) or None


@lru_cache(maxsize=16)
def _table(app: Any) -> list[tuple[re.Pattern[str], list[str]]]:
    return [
        (re.compile(_PARAMETER.sub("[^/]+", re.escape(template))), [method.upper() for method in methods])
        for template, methods in app.openapi()["paths"].items()
    ]
