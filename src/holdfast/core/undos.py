"""The compensations of a rollback that are still to be run.

Each of them has had its row since the plan was made, so a snapshot tells only how many are left: were they repeated in
it, a rollback of a thousand steps would write a thousand plans. Whoever ran the last one has them in memory; whoever
comes from elsewhere reads the rows, under the instance's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

LARGEST: Final = 4_096  # bytes of an input that is kept in memory until its turn comes


class Undo(msgspec.Struct, frozen=True, gc=False):
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


class _Detail(msgspec.Struct):
    undoes: str
    undoes_at: int
    evidence: bool = False


_detail: Final = msgspec.json.Decoder(_Detail).decode
_DETAIL: Final = b'{"ordinal":%d,"undoes":"%b","undoes_at":%d%b}'


def detail_of(ordinal: int, of: bytes, of_at: int, *, is_evidence: bool) -> bytes:
    """What the row of a compensation says about its place in the plan and the row it takes back."""
    return _DETAIL % (ordinal, of.hex().encode(), of_at, b',"evidence":true' if is_evidence else b"")


def undo_of(node: str, path: str, hop: int, step: bytes, at: int, fence: int, run: int, detail: bytes) -> Undo:
    """From the row of a compensation; `fence` is the highest its path has seen."""
    told = _detail(detail)
    return Undo(node, path, hop, step, at, bytes.fromhex(told.undoes), told.undoes_at, fence, run, told.evidence)


class Undos:
    """What is left, the present one first; or only how many, where nobody has read them yet.

    Whoever made the plan also knows what each compensation is called with. Where that is not known, or too large to be
    kept in memory, the compensation goes through the queue, because a claim brings it.
    """

    __slots__ = ("_all", "_inputs", "_present", "_unread")

    def __init__(self, undos: Iterable[Undo] = (), inputs: Sequence[bytes | None] = ()) -> None:
        self._all = tuple(undos)
        self._inputs = inputs
        self._present = 0  # its place in both
        self._unread = 0

    @classmethod
    def unread(cls, count: int) -> Undos:
        undos = cls()
        undos._unread = count
        return undos

    @property
    def is_read(self) -> bool:
        return not self._unread

    @property
    def rest(self) -> Undos:
        rest = Undos.__new__(Undos)
        rest._all, rest._inputs, rest._present, rest._unread = self._all, self._inputs, self._present + 1, 0
        return rest

    @property
    def input(self) -> bytes | None:
        """What the present one is called with, if that is known."""
        return self._inputs[self._present] if self._present < len(self._inputs) else None

    def with_fence(self, path: str, fence: int) -> Undos:
        """What comes back to the path goes by fences that come after this one."""
        undos = (msgspec.structs.replace(undo, fence=fence) if undo.path == path else undo for undo in self)
        return Undos(undos, self._inputs[self._present :])

    def __getitem__(self, index: int) -> Undo:
        assert not self._unread, "the compensations have to be read first"
        return self._all[self._present + index]

    def __iter__(self) -> Iterator[Undo]:
        assert not self._unread, "the compensations have to be read first"
        return iter(self._all[self._present :])

    def __len__(self) -> int:
        return self._unread or len(self._all) - self._present

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Undos):
            return False
        if self._unread or other._unread:
            return self._unread == other._unread
        return self._all[self._present :] == other._all[other._present :]

    def __hash__(self) -> int:
        return hash((self._unread, self._all[self._present :]))

    def __repr__(self) -> str:
        return f"Undos.unread({self._unread})" if self._unread else f"Undos({list(self)!r})"


def worth_keeping(inputs: Sequence[bytes]) -> tuple[bytes | None, ...]:
    """What is due at once in any case; of the rest what is small."""
    return (*inputs[:1], *[input if len(input) <= LARGEST else None for input in inputs[1:]])


def counted(undos: Any) -> int:
    """How a snapshot holds them; an encoder asks for what it does not know."""
    return len(undos)


def uncounted(_type: type, stored: Any) -> Undos:
    """From a snapshot."""
    return Undos.unread(msgspec.convert(stored, int))
