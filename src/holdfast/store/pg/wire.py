"""Values as PostgreSQL's binary protocol wants them: ids are 16 bytes, times are its own microseconds, JSON is bytes.

Arrays are built here instead of by the driver's adapters: a batch of 256 rows is some forty arrays, and joining
memoised pieces costs a tenth of adapting each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final

NULL: Final = b"\xff\xff\xff\xff"
_HEAD: Final = Struct("!iiIii").pack
_LENGTH: Final = Struct("!i").pack
_JSONB_HEAD: Final = Struct("!ib").pack
_INT8: Final = Struct("!q")
_MEMO_LIMIT: Final = 20_000

Encoder = Callable[[Any], bytes]
ArrayEncoder = Callable[[Sequence[Any]], bytes]


class _Memo(dict[Any, bytes]):
    """value → prefix and length-prefixed bytes: nodes, statuses, versions and times repeat all the time."""

    def __init__(self, encode: Encoder, prefix: bytes = b"") -> None:
        super().__init__()
        self._encode = encode
        self._prefix = prefix

    def __missing__(self, value: Any) -> bytes:
        if value is None:
            return self._prefix + NULL
        if len(self) > _MEMO_LIMIT:
            self.clear()
        data = self._encode(value)
        self[value] = data = self._prefix + _LENGTH(len(data)) + data
        return data


def _is_uniform(column: Sequence[Any]) -> bool:
    """Check for one value in all rows: the organisation of most batches, their flow, an argument left empty by all."""
    return bool(column) and column[0] == column[-1] and column.count(column[0]) == len(column)


def _memoised(oid: int, encode: Encoder) -> ArrayEncoder:
    piece = _Memo(encode).__getitem__

    def encode_column(column: Sequence[Any]) -> bytes:
        size = len(column)
        pieces = piece(column[0]) * size if _is_uniform(column) else b"".join(map(piece, column))
        return _HEAD(1, 1, oid, size, 1) + pieces

    return encode_column


def _bytes_array(oid: int) -> ArrayEncoder:
    def encode(column: Sequence[bytes | None]) -> bytes:
        pieces = [NULL if v is None else _LENGTH(len(v)) + v for v in column]
        return _HEAD(1, 1, oid, len(column), 1) + b"".join(pieces)

    return encode


def _uuid_array(column: Sequence[bytes | None], prefix: bytes = b"\0\0\0\x10") -> bytes:
    size = len(column)
    head = _HEAD(1, 1, 2950, size, 1)
    if _is_uniform(column):
        return head + (NULL if column[0] is None else prefix + column[0]) * size
    if not column or None in column:
        return head + b"".join([NULL if v is None else prefix + v for v in column])
    return head + prefix + prefix.join(column)  # type: ignore[arg-type]


def _jsonb_array(column: Sequence[bytes | None]) -> bytes:
    size = len(column)
    if _is_uniform(column) and column[0] is None:  # most optional columns of most batches
        return _HEAD(1, 1, 3802, size, 1) + NULL * size
    pieces = [NULL if v is None else _JSONB_HEAD(len(v) + 1, 1) + v for v in column]
    return _HEAD(1, 1, 3802, size, 1) + b"".join(pieces)


_SCALARS: Final[dict[str, tuple[int, Encoder]]] = {
    "boolean": (16, lambda v: b"\1" if v else b"\0"),
    "bytea": (17, bytes),
    "bigint": (20, _INT8.pack),
    "smallint": (21, Struct("!h").pack),
    "int": (23, Struct("!i").pack),
    "text": (25, str.encode),
    "real": (700, Struct("!f").pack),
    "timestamptz": (1184, _INT8.pack),
    "uuid": (2950, bytes),
    "jsonb": (3802, lambda v: b"\1" + v),
}

_REPEATING: Final = ("boolean", "bigint", "smallint", "int", "text", "real", "timestamptz")

_ARRAYS: Final[dict[str, ArrayEncoder]] = {
    "uuid": _uuid_array,
    "jsonb": _jsonb_array,
    "bytea": _bytes_array(17),
    **{name: _memoised(*_SCALARS[name]) for name in _REPEATING},
}


def _single(name: str) -> Encoder:
    """An array of one value, as a commit of a lone flow has a hundred of."""
    oid, encode = _SCALARS[name]
    head = _HEAD(1, 1, oid, 1, 1)
    if name in _REPEATING:
        return _Memo(encode, head).__getitem__
    nothing = head + NULL
    if name == "jsonb":
        return lambda v: nothing if v is None else head + _JSONB_HEAD(len(v) + 1, 1) + v
    return lambda v: nothing if v is None else head + _LENGTH(len(v)) + v


_SINGLES: Final[dict[str, Encoder]] = {name: _single(name) for name in _SCALARS}


def array_encoder(type_name: str) -> ArrayEncoder:
    return _ARRAYS[type_name]


def single_encoder(type_name: str) -> Encoder:
    return _SINGLES[type_name]


def scalar_encoder(type_name: str) -> Callable[[Any], bytes | None]:
    encode = _SCALARS[type_name][1]
    return lambda value: None if value is None else encode(value)


def read_int(data: bytes) -> int:
    """A binary integer or timestamp of any width."""
    return int.from_bytes(data, "big", signed=True)
