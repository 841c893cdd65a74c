"""Templates: files of contracts, patches and tables to begin with."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from holdfast.errors import NotFound

_ROOM: Final = "holdfast.doors.envelope"
_SUFFIX: Final = ".yaml"


def template_names() -> tuple[str, ...]:
    """List the templates that there are, sorted."""
    found = (each.name for each in files(_ROOM).joinpath("templates").iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def read_template(name: str) -> str:
    """Read the text of a template."""
    known = template_names()
    if name not in known:
        raise NotFound(
            f"There is no template {name[:80]!r}.",
            code="TEMPLATE_NOT_FOUND",
            hint=f"Choose one of {', '.join(known)}.",
        )
    return files(_ROOM).joinpath("templates", name + _SUFFIX).read_text(encoding="utf-8")
