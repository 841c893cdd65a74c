"""Classes of commit failures, and whether an item refused alone is to blame.

Data of one instance may be poison. When instance after instance is refused in the same way, and nothing of the sort is
stored in between, it is not the data: it is a trigger, a constraint or a defect, and dropping would take every flow.
"""

from __future__ import annotations

from typing import Final

from holdfast.errors import StoreError
from holdfast.store.pg.session import DatabaseError

ENOUGH: Final = 3  # more instances than these, refused alike, are no coincidence

_PASSES: Final = ("40", "55", "57", "53", "08", "25")
_POISON: Final = ("22", "23", "54", "P0", "HF002")


def kind_of(failure: Exception) -> str:
    if isinstance(failure, StoreError):
        return "systemic"  # a statement that cannot even be prepared
    if not isinstance(failure, DatabaseError):
        return "defect"
    if failure.sqlstate in ("HF001", "23505"):
        return "race"
    if failure.sqlstate.startswith(_PASSES):
        return "passing"
    return "poison" if failure.sqlstate.startswith(_POISON) else "systemic"


def way_of(failure: Exception) -> str:
    """The kind of refusal, without its statement: one trigger on `steps` meets results in several."""
    return failure.sqlstate if isinstance(failure, DatabaseError) else type(failure).__name__


class Suspicion:
    """Instances refused alone since an item of their sort was last stored."""

    def __init__(self) -> None:
        self._ways: dict[bytes, str] = {}

    def __bool__(self) -> bool:
        return bool(self._ways)

    def add(self, instance: bytes, way: str) -> None:
        if any(other != way for other in self._ways.values()):
            self._ways.clear()
        if not self.is_systemic:
            self._ways[instance] = way

    def clear(self) -> None:
        self._ways.clear()

    @property
    def is_systemic(self) -> bool:
        return len(self._ways) > ENOUGH
