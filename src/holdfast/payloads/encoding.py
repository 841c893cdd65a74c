"""The one strict JSON edge: the values that may be stored, and their bytes.

PostgreSQL's jsonb, RFC 8785 and Python disagree on JSON. A value that passes here is safe for all three: finite
numbers, 64-bit integers, text keys, no NUL, no lone surrogates, bounded depth and size.

Speed: msgspec writes bytes quickly but leniently (NaN becomes null, integer keys become text). So the happy path
encodes, reads back and compares, all in C: bytes that read back equal lost nothing. Only a value that fails this, or
whose bytes look suspicious, is walked in Python; the walk converts values that have a JSON form and names the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NoReturn

import msgspec
import rfc8785

from holdfast.errors import PayloadError
from holdfast.payloads.bounds import GROWTH, is_deep, stored_size
from holdfast.payloads.numbers import DIGITS, LARGE_FLOAT, spelled
from holdfast.payloads.plain import HASHED_INTEGERS, MAX_DEPTH, check

WARN_BYTES: Final = 256 * 1024
MAX_BYTES: Final = 2 * 1024 * 1024
NEVER_GROWS: Final = MAX_BYTES // GROWTH  # beyond the bound, whatever numbers it holds

_encode: Final[Callable[[Any], bytes]] = msgspec.json.Encoder().encode
_encode_sorted: Final[Callable[[Any], bytes]] = msgspec.json.Encoder(order="deterministic").encode
_decode: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode

_BACKSLASH: Final = ord("\\")
_LONG_INTEGER: Final = b"0" * 19
# Floats, escapes and large integers are spelled differently by RFC 8785 and msgspec.
_SPELLED_DIFFERENTLY: Final = re.compile(rb"[0-9][.e]|\\u|[0-9]{16}")


def encode(value: Any, place: str) -> bytes:
    """Compact JSON of `value`, or a PayloadError that names `place` and the path inside the value."""
    size = 0
    try:
        data = _encode(value)
        size = len(data)
        if size > NEVER_GROWS:
            size = stored_size(data, MAX_BYTES)
        shape = data.translate(DIGITS)  # once, for both that look at it
        if size <= MAX_BYTES and not _suspicious(data, shape) and (_decode(data) == value) is True:
            return data if shape.find(LARGE_FLOAT) < 0 else spelled(data)
    except Exception:  # noqa: S110  # whatever it was, the walk finds it and can say where it is
        pass
    _check_size(size, place)  # now: a walk over millions of items would hold up everybody else
    data = _encode(check(value, place))
    _check_size(stored_size(data, MAX_BYTES), place)
    return spelled(data)


def decode(data: bytes | str, place: str) -> Any:
    """The value of JSON that came from outside; refuses exactly what `encode` refuses, and repeated keys."""
    raw = _utf8(data, place)
    _check_size(len(raw), place)
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _refuse_json(raw, place, str(error))
    if _suspicious(raw, raw.translate(DIGITS)):
        check(value, place)
    back = _encode(value)
    _check_size(stored_size(back, MAX_BYTES), place)
    # Reading keeps the last of two equal keys, so a repeated key loses its colon on the way back.
    if raw.count(b":") != back.count(b":") or b"\\u003" in raw:
        _refuse_repeated_keys(raw, place)
    return value


def canonical(value: Any, place: str = "The hashed content") -> bytes:
    """RFC 8785 bytes: equal values give equal bytes whatever the order of their keys."""
    try:
        data = _encode_sorted(value)
        same_spelling = data.isascii() and not _SPELLED_DIFFERENTLY.search(data)
        if same_spelling and not _suspicious(data, data.translate(DIGITS)) and (_decode(data) == value) is True:
            return data
    except Exception:  # noqa: S110  # whatever it was, the walk finds it and can say where it is
        pass
    return rfc8785.dumps(check(value, place, HASHED_INTEGERS))


def hash_json(value: Any, place: str = "The hashed content") -> str:
    return sha256(canonical(value, place)).hexdigest()


def is_large(data: bytes) -> bool:
    """Worth a warning: storable, but every commit that rewrites it pays for it."""
    return len(data) > WARN_BYTES


def _suspicious(data: bytes, shape: bytes) -> bool:
    """Check whether the bytes may hold NUL, an integer beyond 64 bits or too many levels. Never false when they do.

    `shape` is the same with a zero for every digit.
    """
    # `find` because `in` costs twice as much on short bytes; looking for one byte costs next to nothing.
    if _BACKSLASH in data and data.find(b"\\u0000") >= 0:
        return True
    if shape.find(_LONG_INTEGER) >= 0:
        return True
    return len(data) > 2 * MAX_DEPTH and is_deep(data, MAX_DEPTH)


def _check_size(size: int, place: str) -> None:
    if size > MAX_BYTES:
        raise PayloadError(
            f"{place} is {size} bytes of JSON; at most {MAX_BYTES} can be stored.",
            code="PAYLOAD_TOO_LARGE",
            hint="Store the content elsewhere and pass a reference to it.",
            place=place,
            size=size,
        )


def _utf8(data: bytes | str, place: str) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError:
        check(data, place)
        raise


def _refuse_json(raw: bytes, place: str, problem: str) -> NoReturn:
    """Say why: the lenient parser of the standard library reads NaN and half characters, the walk then names them."""
    # Asked first: where the parser's own recursion ends depends on the process.
    if is_deep(raw, 2 * MAX_DEPTH):
        raise PayloadError(
            f"{place} is nested deeper than {MAX_DEPTH} levels.",
            code="PAYLOAD_TOO_DEEP",
            hint="Flatten it.",
            place=place,
        )
    try:
        check(json.loads(raw.decode(), parse_int=_bounded_integer), place)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8"
    raise PayloadError(
        f"{place} is not JSON: {problem}.",
        code="PAYLOAD_NOT_JSON",
        hint="Send one JSON document in UTF-8.",
        place=place,
    )


def _bounded_integer(digits: str) -> int:
    # Python refuses to read thousands of digits; any integer that long is out of range all the same.
    return int(digits[:100])


def _refuse_repeated_keys(raw: bytes, place: str) -> None:
    def pairs(members: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in members:
            if key in seen:
                raise PayloadError(
                    f"{place} is ambiguous: the key {ascii(key)[:40]} is repeated in one object.",
                    code="PAYLOAD_DUPLICATE_KEY",
                    hint="Send each key once.",
                    place=place,
                )
            seen.add(key)

    json.loads(raw, object_pairs_hook=pairs)
