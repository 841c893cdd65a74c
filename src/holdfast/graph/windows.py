"""Edit windows: what people may do to a document while its instance is somewhere."""

from __future__ import annotations

from typing import Final, Literal

Window = Literal["editable", "amend_only", "locked"]

EDITABLE: Final = "editable"
LOCKED: Final = "locked"
WINDOWS: Final[tuple[Window, ...]] = (EDITABLE, "amend_only", LOCKED)  # from the loosest to the strictest


def strictest(*windows: str | None) -> Window:
    """The strictest of several windows; without any, nothing may be edited."""
    found: list[Window] = [window for window in WINDOWS if window in windows]
    return found[-1] if found else LOCKED
