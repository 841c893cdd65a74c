"""A resolver of one's own, found by the name that HOLDFAST_RESOLVER or `--resolver` gives."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Final, cast

from holdfast.errors import HoldfastError
from holdfast.server.auth.capabilities import Resolver

VARIABLE: Final = "HOLDFAST_RESOLVER"


def load_resolver(place: str) -> Resolver:
    """`module:attribute`, the current directory first: a resolver, or a function without parameters that makes one."""
    module_name, _, path = place.partition(":")
    if not module_name or not path:
        raise _invalid(place, "is not of the form module:attribute")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
        if isinstance(found, type) or not hasattr(found, "resolve"):
            found = found()
    except HoldfastError:
        raise
    except Exception as failure:
        raise _invalid(place, f"cannot be used: {type(failure).__name__}: {failure}") from failure
    if not callable(getattr(found, "resolve", None)):
        raise _invalid(place, "has no `resolve`")
    return cast("Resolver", found)


def _invalid(place: str, problem: str) -> HoldfastError:
    return HoldfastError(
        f"The resolver {place!r} {problem}.",
        code="SETTING_INVALID",
        hint="Write module:attribute of an object with `async def resolve`; see `holdfast docs capabilities`.",
        variable=VARIABLE,
    )
