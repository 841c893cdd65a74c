"""Edit windows: what people may do to a document while its instance is somewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

EDITABLE: Final = "editable"
LOCKED: Final = "locked"
WINDOWS: Final = (EDITABLE, "amend_only", LOCKED)  # from the loosest to the strictest


def strictest(windows: Iterable[str]) -> str:
    """The strictest of several windows; without any, nothing may be edited."""
    return max(windows, key=WINDOWS.index, default=LOCKED)
