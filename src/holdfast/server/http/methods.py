"""Methods of a path. The framework names those of the first route it finds; several may share a path."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from starlette.types import Scope

_PARAMETER = re.compile(r"\\\{[^/{}]+\\\}")


def allowed_methods(scope: Scope) -> str | None:
    """The value of the header Allow; None for a path that the description of the API does not have."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    table = _table(scope["app"])
    fitting = [table[path]] if path in table else [known for known in table.values() if known[0].fullmatch(path)]
    return ", ".join(sorted({method for _, methods in fitting for method in methods})) or None


@lru_cache(maxsize=16)
def _table(app: Any) -> dict[str, tuple[re.Pattern[str], list[str]]]:
    """Methods by path or template. A literal path is looked up first, so it never matches a template."""
    return {
        template: (re.compile(_PARAMETER.sub("[^/]+", re.escape(template))), [method.upper() for method in methods])
        for template, methods in app.openapi()["paths"].items()
    }
