"""Kinds of operations that others bring, found through the entry point group `holdfast.invokers`.

An entry point leads to an object with a `name`, the kind, and `handlers(engine)`, a mapping of operations to functions.
`{"send": f}` of the kind `sms` is what a step calls as `sms:send`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, cast

from holdfast.errors import HoldfastError
from holdfast.runtime.invokers.errors import shown

GROUP: Final = "holdfast.invokers"
RESERVED: Final = frozenset({"python", "openapi"})
KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")


class Invoker(Protocol):
    """Provider of a kind of operations. `handlers` is called once per engine, before its worker starts."""

    name: str

    def handlers(self, engine: Any) -> Mapping[str, Callable[..., Any]]: ...


def find_invokers() -> dict[str, Invoker]:
    """Find the invokers of every installed distribution, by their kind."""
    found: dict[str, Invoker] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        invoker = _load(entry)
        if invoker.name in found:
            raise _invalid(entry, f"another one has the kind {invoker.name!r}")
        found[invoker.name] = invoker
    return found


def handlers_of(invoker: Invoker, engine: Any) -> dict[str, Callable[..., Any]]:
    """The handlers of an invoker, by the full name of their operation."""
    offered: Any = invoker.handlers(engine)
    if not isinstance(offered, Mapping):
        raise HoldfastError(
            f"The invoker {invoker.name!r} offers no mapping of handlers.",
            code="INVOKER_INVALID",
            hint="Answer {operation: function}.",
        )
    functions = cast("Mapping[Any, Any]", offered)
    for name, function in functions.items():
        if not isinstance(name, str) or not name or not callable(function):
            raise HoldfastError(
                f"The invoker {invoker.name!r} offers {shown(name)}, which is no operation.",
                code="INVOKER_INVALID",
                hint="Answer {operation: function}.",
            )
    return {f"{invoker.name}:{name}": function for name, function in functions.items()}


def check_kind(name: Any, what: str) -> str:
    if not isinstance(name, str) or not KIND.fullmatch(name):
        raise HoldfastError(
            f"{shown(name)} is no name for {what}.",
            code="INVOKER_INVALID",
            hint="Use letters, digits, `_` and `-`, beginning with a letter.",
        )
    return name


def _load(entry: EntryPoint) -> Invoker:
    try:
        loaded = entry.load()
        invoker = loaded() if isinstance(loaded, type) else loaded
    except Exception as failure:
        raise _invalid(entry, f"it cannot be loaded ({type(failure).__name__}: {failure})") from failure
    name = getattr(invoker, "name", None)
    if not callable(getattr(invoker, "handlers", None)):
        raise _invalid(entry, "it has no `handlers`")
    if check_kind(name, "a kind of operations") in RESERVED:
        raise _invalid(entry, f"the kind {name!r} is built in")
    return cast("Invoker", invoker)


def _invalid(entry: EntryPoint, why: str) -> HoldfastError:
    distribution = entry.dist.name if entry.dist is not None else "?"
    return HoldfastError(
        f"The invoker {entry.name!r} of {distribution} cannot be used: {why}.",
        code="INVOKER_INVALID",
        hint="Repair or uninstall the distribution.",
    )
