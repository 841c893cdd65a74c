"""What may be stored, what may not, and the sentence the user reads."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import timeit
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import payloads
from holdfast.errors import PayloadError

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)
SAFE_NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
HASHABLE = st.recursive(
    st.none() | st.booleans() | SAFE_NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Key(enum.StrEnum):
    NAME = "name"


class Text(str):
    __slots__ = ()


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal
    extra: Any = None


class Order(msgspec.Struct, tag="order"):
    id: UUID
    lines: list[Any]


class Model(pydantic.BaseModel):
    when: datetime.datetime
    ratio: float


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusal(value: Any) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        payloads.encode(value, "The input of 'order'")
    return caught.value


CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})

REFUSED: list[tuple[Any, str, str]] = [
    ({"a": [1, math.nan]}, "PAYLOAD_NOT_FINITE", "a[1]"),
    (math.inf, "PAYLOAD_NOT_FINITE", ""),
    ([-math.inf], "PAYLOAD_NOT_FINITE", "[0]"),
    ({"d": Decimal("NaN")}, "PAYLOAD_NOT_FINITE", "d"),
    ({"d": Line("x", Decimal("sNaN"))}, "PAYLOAD_NOT_FINITE", "d.price"),
    ({"m": Model(when=NOON, ratio=math.nan)}, "PAYLOAD_NOT_FINITE", "m.ratio"),
    ({"a": {"b": "x\0"}}, "PAYLOAD_NUL", "a.b"),
    ({"a\0": 1}, "PAYLOAD_NUL", "['a\\x00']"),
    ({"a": "\ud800"}, "PAYLOAD_SURROGATE", "a"),
    ({"\udfff": 1}, "PAYLOAD_SURROGATE", "['\\udfff']"),
    ({"a": {1: 2}}, "PAYLOAD_KEY", "a[1]"),
    ({None: 1}, "PAYLOAD_KEY", "[None]"),
    ({True: 1}, "PAYLOAD_KEY", "[True]"),
    ({1.5: 1}, "PAYLOAD_KEY", "[1.5]"),
    ({Colour.RED: 1}, "PAYLOAD_KEY", "[<Colour.RED: 'red'>]"),
    ({"s": {1, 2}}, "PAYLOAD_TYPE", "s"),
    ({"b": b"x"}, "PAYLOAD_TYPE", "b"),
    ({"f": len}, "PAYLOAD_TYPE", "f"),
    ({"t": Line}, "PAYLOAD_TYPE", "t"),
    ({"t": Model}, "PAYLOAD_TYPE", "t"),
    ({"c": 1j}, "PAYLOAD_TYPE", "c"),
    ({"d": datetime.timedelta(1)}, "PAYLOAD_TYPE", "d"),
    ({"l": Line("x", Decimal(1), object())}, "PAYLOAD_TYPE", "l"),
    ({"l": Line("x", Decimal(1), b"raw")}, "PAYLOAD_TYPE", "l.extra"),
    ({"n": 2**63}, "PAYLOAD_INTEGER", "n"),
    ({"n": [0, -(2**63) - 1]}, "PAYLOAD_INTEGER", "n[1]"),
    (10**5000, "PAYLOAD_INTEGER", ""),
    (nested(65), "PAYLOAD_TOO_DEEP", "[0]" * 64),
    (nested(100_000), "PAYLOAD_TOO_DEEP", "[0]" * 64),
    (CYCLE, "PAYLOAD_TOO_DEEP", "[0].again" * 32),
]


@pytest.mark.parametrize(("value", "code", "path"), REFUSED, ids=[f"{n}-{row[1]}" for n, row in enumerate(REFUSED)])
def test_refused_values_name_the_place_and_the_path(value: Any, code: str, path: str) -> None:
    error = refusal(value)
    assert (error.code, error.detail["path"]) == (code, path)
    assert error.message.startswith("The input of 'order' cannot be stored: ")
    assert path in error.message
    assert error.hint
    str(error).encode()  # printable everywhere


def test_a_value_above_the_size_limit_is_refused() -> None:
    fits = "x" * (payloads.MAX_BYTES - 2)
    assert len(payloads.encode(fits, "The input")) == payloads.MAX_BYTES
    error = refusal(fits + "x")
    assert error.code == "PAYLOAD_TOO_LARGE"
    assert str(payloads.MAX_BYTES) in error.message


def test_a_large_value_is_worth_a_warning() -> None:
    assert not payloads.is_large(b"x" * payloads.WARN_BYTES)
    assert payloads.is_large(b"x" * (payloads.WARN_BYTES + 1))


ORDER_ID = UUID("0198c0de-0000-7000-8000-000000000001")

CONVERTED: list[tuple[Any, Any]] = [
    ((1, (2,)), [1, [2]]),
    (Decimal("10.50"), "10.50"),
    (ORDER_ID, str(ORDER_ID)),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), "2026-01-02T03:04:00+00:00"),
    ([Colour.RED, Level.HIGH, Key.NAME], ["red", 3, "name"]),
    ({Key.NAME: Text("x")}, {"name": "x"}),
    ({Text("k"): 1}, {"k": 1}),
    (Line("x", Decimal("1.5"), Text("y")), {"sku": "x", "price": "1.5", "extra": "y"}),
    (
        Order(ORDER_ID, [Line("x", Decimal(2)), Colour.RED]),
        {"type": "order", "id": str(ORDER_ID), "lines": [{"sku": "x", "price": "2", "extra": None}, "red"]},
    ),
    (
        {"model": Model(when=NOON, ratio=0.5)},
        {"model": {"when": "2026-01-02T12:00:00Z", "ratio": 0.5}},
    ),
    (Line("x", Decimal(1), Model(when=NOON, ratio=1)), None),
    ([9223372036854775807, -9223372036854775808, "9" * 40, "\\u0000"], None),
    ([[] for _ in range(200)], None),
    (nested(64), None),
    (["[" * 100, {"]": ['"', "\\", '\\"[[[', "{" * 99]}], None),
]


@pytest.mark.parametrize(("value", "expected"), CONVERTED)
def test_values_with_a_json_form_are_accepted(value: Any, expected: Any) -> None:
    data = payloads.encode(value, "The input")
    decoded = payloads.decode(data, "The input")
    if expected is not None:
        assert decoded == expected
    assert json.loads(data) == decoded


@given(JSON)
def test_round_trip(value: Any) -> None:
    data = payloads.encode(value, "The input")
    assert payloads.decode(data, "The input") == value
    assert payloads.decode(data.decode(), "The input") == value


@given(
    st.recursive(
        SCALARS | st.floats() | st.binary() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text() | st.integers(), v),
    )
)
def test_whatever_is_encoded_reads_back_strictly(value: Any) -> None:
    try:
        data = payloads.encode(value, "The input")
    except PayloadError:
        return
    assert payloads.decode(data, "The input") == json.loads(data) == value


REFUSED_TEXT: list[tuple[bytes | str, str]] = [
    (b"", "PAYLOAD_NOT_JSON"),
    (b"{", "PAYLOAD_NOT_JSON"),
    (b"[1,]", "PAYLOAD_NOT_JSON"),
    (b"{} {}", "PAYLOAD_NOT_JSON"),
    (b"'a'", "PAYLOAD_NOT_JSON"),
    (b'"\xff"', "PAYLOAD_NOT_JSON"),
    (b'"\xed\xa0\x80"', "PAYLOAD_NOT_JSON"),
    (b'"a\x00b"', "PAYLOAD_NOT_JSON"),
    (b"\xef\xbb\xbf{}", "PAYLOAD_NOT_JSON"),
    (b'{"a": NaN}', "PAYLOAD_NOT_FINITE"),
    (b"[Infinity]", "PAYLOAD_NOT_FINITE"),
    (b"-Infinity", "PAYLOAD_NOT_FINITE"),
    (b"[1e400]", "PAYLOAD_NOT_FINITE"),
    (b'{"a": "\\u0000"}', "PAYLOAD_NUL"),
    (b'{"\\u0000": 1}', "PAYLOAD_NUL"),
    (b'"\\ud800"', "PAYLOAD_SURROGATE"),
    (b'"\\ud800 and more"', "PAYLOAD_SURROGATE"),
    (b'["\\udc00\\ud800"]', "PAYLOAD_SURROGATE"),
    ('"\ud800"', "PAYLOAD_SURROGATE"),
    (b"9223372036854775808", "PAYLOAD_INTEGER"),
    (b"[-" + b"9" * 5000 + b"]", "PAYLOAD_INTEGER"),
    (b"[" * 65 + b"]" * 65, "PAYLOAD_TOO_DEEP"),
    (b"[" * 500_000, "PAYLOAD_TOO_DEEP"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "PAYLOAD_TOO_DEEP"),
    (b'["]",' * 70 + b'"' + b"[" * 70 + b'"' + b"]" * 70, "PAYLOAD_TOO_DEEP"),
    (b'{"a": 1, "a": 2}', "PAYLOAD_DUPLICATE_KEY"),
    (b'[{"b": {"a": 1, "\\u0061": "\\u003a"}}]', "PAYLOAD_DUPLICATE_KEY"),
    (b'"' + b"x" * payloads.MAX_BYTES + b'"', "PAYLOAD_TOO_LARGE"),
]


@pytest.mark.parametrize(("data", "code"), REFUSED_TEXT, ids=[f"{n}-{row[1]}" for n, row in enumerate(REFUSED_TEXT)])
def test_refused_json(data: bytes | str, code: str) -> None:
    with pytest.raises(PayloadError) as caught:
        payloads.decode(data, "The body")
    assert caught.value.code == code
    assert caught.value.message.startswith("The body ")
    assert caught.value.hint


def test_malformed_json_names_line_and_column() -> None:
    with pytest.raises(PayloadError, match="line 2, column 3"):
        payloads.decode(b'{"a": 1,\n  b}', "The body")


@given(st.binary(max_size=40) | st.text(max_size=40))
@example(b'{"\\u003a": ":"}')
def test_decode_of_anything_is_a_value_or_a_payload_error(data: bytes | str) -> None:
    try:
        value = payloads.decode(data, "The body")
    except PayloadError:
        return
    assert payloads.decode(payloads.encode(value, "The body"), "The body") == value


def test_key_order_does_not_change_the_hash() -> None:
    assert payloads.hash_json({"b": 1, "a": 2}) == payloads.hash_json({"a": 2, "b": 1})
    assert payloads.hash_json({"a": 1}) != payloads.hash_json({"a": "1"})


def test_the_hash_is_sha256_of_the_canonical_bytes() -> None:
    assert payloads.canonical({"b": [1.0, "é", None], "a": True}) == '{"a":true,"b":[1,"é",null]}'.encode()
    assert payloads.hash_json({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@given(HASHABLE)
def test_canonical_bytes_are_those_of_rfc_8785(value: Any) -> None:
    assert payloads.canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text("ab€\ue000\U0001f600", max_size=3), st.integers(0, 9), max_size=6))
def test_keys_sort_as_utf_16(value: dict[str, int]) -> None:
    assert payloads.canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"n": 2**53}, "PAYLOAD_INTEGER"),
        ({"n": -(2**53)}, "PAYLOAD_INTEGER"),
        ({"n": math.nan}, "PAYLOAD_NOT_FINITE"),
        ({"n": [math.inf]}, "PAYLOAD_NOT_FINITE"),
        ({1: 1}, "PAYLOAD_KEY"),
        ({"n": "\0"}, "PAYLOAD_NUL"),
        (nested(65), "PAYLOAD_TOO_DEEP"),
    ],
)
def test_values_that_do_not_hash_alike_everywhere_are_refused(value: Any, code: str) -> None:
    with pytest.raises(PayloadError) as caught:
        payloads.hash_json(value)
    assert caught.value.code == code
    assert caught.value.hint


def test_a_small_value_costs_microseconds_to_encode() -> None:
    value = {"amount": 5, "kind": "digital", "note": None, "ratio": 1.5}
    timer = timeit.Timer(lambda: payloads.encode(value, "The input"))
    # The target is 2 µs; twice that, so that a busy machine does not fail the test.
    assert min(timer.repeat(repeat=50, number=2_000)) / 2_000 < 4e-6


@pytest.mark.parametrize("number", [1e308, -1e308, 1e-300, 1.7976931348623157e308, 5e-324])
def test_numbers_count_with_the_digits_they_are_stored_with(number: float) -> None:
    """A body of a megabyte once became fifty in the database."""
    few, many = [number] * 1000, [number] * 50_000
    assert payloads.decode(payloads.encode(few, "x"), "x") == few
    for refused in (lambda: payloads.encode(many, "x"), lambda: payloads.decode(json.dumps(many), "x")):
        with pytest.raises(PayloadError) as refusal:
            refused()
        assert refusal.value.code == "PAYLOAD_TOO_LARGE"


def typed(value: Any) -> Any:
    """Equal numbers of different types differ: 1 and 1.0."""
    return repr(value)


@given(st.recursive(SCALARS | st.floats(1e15, allow_infinity=False) | st.text('1e9.,:[]"\\\\'), st.lists))
def test_large_floats_are_written_with_a_point_and_no_exponent(value: Any) -> None:
    data = payloads.encode(value, "x")
    assert typed(payloads.decode(data, "x")) == typed(value)
    numbers: list[str] = []
    json.loads(data, parse_float=numbers.append, parse_int=lambda digits: None)
    assert not [text for text in numbers if "e" in text and "e-" not in text]


def test_text_that_reads_like_numbers_counts_as_it_is() -> None:
    text = [",1e308," * 10, '"1e308', "1e308]"] * 2000
    assert payloads.decode(payloads.encode(text, "x"), "x") == text
