"""Applications: the namespace a handler's name belongs to.

Two services on one database may both have a function `charge`. Its whole name is `APP/charge`: steps of a flow are
queued under the whole name, so each service runs its own. See docs/decisions/0020-a-handler-belongs-to-an-app.md.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.doors.saga.model import Function
from holdfast.errors import HoldfastError

SEPARATOR: Final = "/"
_APP: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_OURS: Final = "holdfast"  # handlers that the engine makes itself, of a document, belong to no application


def check_app(app: str | None) -> str | None:
    if app is not None and not _APP.fullmatch(app):
        raise HoldfastError(
            f"{app!r} is not the name of an application.",
            code="APP_NAME_INVALID",
            hint="Use up to 63 letters, digits, dots, hyphens and underscores, starting with a letter or digit.",
        )
    return app


def app_of(function: Function) -> str | None:
    """The top-level package or module that has it; for the program itself, its package or the name of its script."""
    top = _module_of(function).partition(".")[0]
    if top == "__main__":
        top = _program()
    return top if _APP.fullmatch(top) and top != _OURS else None


def origin_of(function: Function) -> str:
    """Describe the home of a function: its module, and the file unless the package is installed."""
    module = _module_of(function)
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if module == "__main__":
        module = _program() or module
    return module if not file or "site-packages" in Path(file).parts else f"{module} ({Path(file).resolve()})"


def whole_name(app: str | None, name: str) -> str:
    """A name that says its application, or whose kind does (`openapi:…`), is whole already."""
    return name if app is None or SEPARATOR in name or ":" in name else f"{app}{SEPARATOR}{name}"


def owners(app: str | None, names: Iterable[str], functions: Mapping[str, Function]) -> dict[str, str]:
    """The application of each short name of a flow that is published here.

    With an application of its own the engine claims all of them. Without, only functions are certain: a name in quotes
    may be any service's.
    """
    found = {name: app or (app_of(functions[name]) if name in functions else None) for name in names}
    return {name: owner for name, owner in found.items() if owner and whole_name(owner, name) != name}


def _module_of(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return getattr(function, "__module__", None) or type(function).__module__


def _program() -> str:
    """Name of the running program: the package of `python -m`, or the script; empty where there is neither."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).partition(".")[0]
    return Path(getattr(main, "__file__", None) or "").stem
