"""The compensations of a rollback that are still to run.

Each of them has had its row since the plan was made, so a snapshot holds only their number: with the plan repeated in
every snapshot, a rollback of a thousand steps would write a thousand plans. The process that ran the last one has them
in memory; another process reads the rows, under the instance's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

LARGEST: Final = 4_096  # bytes of an input that is kept in memory until its turn comes


class Undo(msgspec.Struct, frozen=True, gc=False):
    """One compensation of a rollback: its own row and the row of the step it undoes."""

    node: str
    path: str
    hop: int
    step: bytes
    at: int
    of: bytes
    of_at: int
    fence: int = 0  # the last one the token used
    run: int = 0
    is_evidence: bool = False  # the step it undoes was cancelled before it succeeded


class _Detail(msgspec.Struct):
    undoes: str
    undoes_at: int
    evidence: bool = False


_detail: Final = msgspec.json.Decoder(_Detail).decode
_DETAIL: Final = b'{"ordinal":%d,"undoes":"%b","undoes_at":%d%b}'


def detail_of(ordinal: int, of: bytes, of_at: int, *, is_evidence: bool) -> bytes:
    """The detail of a compensation's row: its place in the plan and the row of the step it undoes."""
    return _DETAIL % (ordinal, of.hex().encode(), of_at, b',"evidence":true' if is_evidence else b"")


def undo_of(node: str, path: str, hop: int, step: bytes, at: int, fence: int, run: int, detail: bytes) -> Undo:
    """Read an `Undo` from the row of a compensation; `fence` is the highest of its path so far."""
    told = _detail(detail)
    return Undo(
        node=node,
        path=path,
        hop=hop,
        step=step,
        at=at,
        of=bytes.fromhex(told.undoes),
        of_at=told.undoes_at,
        fence=fence,
        run=run,
        is_evidence=told.evidence,
    )


class Undos:
    """The compensations left, the present one first; or only their number, as long as their rows are not read.

    The process that made the plan also knows the input of each compensation. Where the input is not known, or too large
    to be kept in memory, the compensation goes through the queue, because a claim brings its input.
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
        """The input of the present compensation, if it is known."""
        return self._inputs[self._present] if self._present < len(self._inputs) else None

    def with_fence(self, path: str, fence: int) -> Undos:
        """Set the last fence of a path, so that its compensations use later ones."""
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
    """Keep the input of the first compensation, which is due at once, and of the rest the small ones."""
    return (*inputs[:1], *[input if len(input) <= LARGEST else None for input in inputs[1:]])


def counted(undos: Any) -> int:
    """Encode compensations as their number: the hook of a snapshot's encoder for a type it does not know."""
    return len(undos)


def uncounted(_type: type, stored: Any) -> Undos:
    """Decode the number of compensations in a snapshot."""
    return Undos.unread(msgspec.convert(stored, int))
