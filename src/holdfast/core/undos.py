"""The compensations of a rollback that are still to be run.

Every stride of a rollback stores what is left of them. In a snapshot they are one text: PostgreSQL takes a text as it
is, while it would rebuild a nested array number by number and write more of it to its log.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec


class Undo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One compensation of a rollback: the row that is to run and the row it takes back."""

    node: str
    path: str
    hop: int
    step: bytes
    at: int
    of: bytes
    of_at: int
    fence: int = 0  # the last one the token used
    run: int = 0
    is_evidence: bool = False  # what it takes back was cancelled before it succeeded


class Undos:
    """What is left, the present one first."""

    __slots__ = ("_all",)

    def __init__(self, undos: Iterable[Undo] = ()) -> None:
        self._all = tuple(undos)

    @property
    def rest(self) -> Undos:
        return Undos(self._all[1:])

    def __getitem__(self, index: int) -> Undo:
        return self._all[index]

    def __iter__(self) -> Iterator[Undo]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undos) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return f"Undos({list(self._all)!r})"


_Undos: Final = tuple[Undo, ...]
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Undos).decode


def packed(undos: Any) -> bytes:
    """How a snapshot holds them; an encoder asks for what it does not know."""
    return _pack(tuple(undos))


def unpacked(_type: type, stored: Any) -> Undos:
    """From a snapshot; the first releases stored a nested array."""
    return Undos(_unpack(b64decode(stored)) if isinstance(stored, str) else msgspec.convert(stored, _Undos))
