"""The compensations of a rollback that are still to be run.

Every stride of a rollback stores what is left of them. In a snapshot they are one text: PostgreSQL takes a text as it
is, while it would rebuild a nested array number by number and write more of it to its log.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

LARGEST: Final = 4_096  # bytes of an input that is kept in memory until its turn comes


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
    """What is left, the present one first.

    Whoever made the plan also knows what each compensation is called with. That is part of its row and not of the
    snapshot; where it is not known, or too large to be kept in memory, the compensation goes through the queue, because
    a claim brings it.
    """

    __slots__ = ("_all", "_inputs")

    def __init__(self, undos: Iterable[Undo] = (), inputs: Sequence[bytes | None] = ()) -> None:
        self._all = tuple(undos)
        self._inputs = inputs

    @property
    def rest(self) -> Undos:
        return Undos(self._all[1:], self._inputs[1:])

    @property
    def input(self) -> bytes | None:
        """What the present one is called with, if that is known."""
        return self._inputs[0] if self._inputs else None

    def with_fence(self, path: str, fence: int) -> Undos:
        """What comes back to the path goes by fences that come after this one."""
        undos = (msgspec.structs.replace(undo, fence=fence) if undo.path == path else undo for undo in self._all)
        return Undos(undos, self._inputs)

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


def worth_keeping(inputs: Sequence[bytes]) -> tuple[bytes | None, ...]:
    """What is due at once in any case; of the rest what is small."""
    return (*inputs[:1], *[input if len(input) <= LARGEST else None for input in inputs[1:]])


_Undos: Final = tuple[Undo, ...]
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(_Undos).decode


def packed(undos: Any) -> bytes:
    """How a snapshot holds them; an encoder asks for what it does not know."""
    return _pack(tuple(undos))


def unpacked(_type: type, stored: Any) -> Undos:
    """From a snapshot; the first releases stored a nested array."""
    return Undos(_unpack(b64decode(stored)) if isinstance(stored, str) else msgspec.convert(stored, _Undos))
