"""What is written as YAML reads back as the same data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.doors.durations import read_duration, write_duration
from holdfast.doors.yaml.problems import Findings
from holdfast.doors.yaml.reading import read_yaml
from holdfast.doors.yaml.tree import plain
from holdfast.doors.yaml.writing import WIDTH, write_yaml

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(-1e6, 1e6).map(lambda x: round(x, 3)) | TEXT
)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


def back(text: str) -> Any:
    findings = Findings("f.yaml")
    tree, _ = read_yaml(text, findings)
    assert findings.problems == []
    assert tree is not None
    return plain(tree)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4))
def test_any_data_comes_back(data: dict[str, Any]) -> None:
    assert back(write_yaml(data)) == data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"a": "plain text"}, "a: plain text\n"),
        ({"a": "no"}, "a: no\n"),
        ({"a": "true"}, 'a: "true"\n'),
        ({"a": "1"}, 'a: "1"\n'),
        ({"a": "2d"}, "a: 2d\n"),
        ({"a": "x: y"}, 'a: "x: y"\n'),
        ({"a": "x #y"}, 'a: "x #y"\n'),
        ({"a": "€ 5"}, 'a: "€ 5"\n'),
        ({"a": "\x07"}, 'a: "\\u0007"\n'),
        ({"a": {}}, "a: {}\n"),
        ({"a": []}, "a: []\n"),
        ({"a": [1, 2.5, None]}, "a: [1, 2.5, null]\n"),
        ({"a": [{"b": 1}, {"b": [2]}]}, "a:\n  - {b: 1}\n  - {b: [2]}\n"),
        ({"a": {"b": {"c": 1}}}, "a:\n  b: {c: 1}\n"),
    ],
)
def test_it_is_written_for_people(data: dict[str, Any], text: str) -> None:
    assert write_yaml(data) == text
    assert back(text) == data


def test_long_entries_are_written_in_blocks() -> None:
    data = {"a": [{"b": "x" * 60, "c": {"d": "y" * 60}}]}
    text = write_yaml(data)
    assert text == f"a:\n  - b: {'x' * 60}\n    c: {{d: {'y' * 60}}}\n"
    assert max(map(len, text.splitlines())) <= WIDTH


@settings(deadline=None)
@given(st.floats(0, 3e9).map(lambda seconds: round(seconds, 6)) | st.integers(0, 10**9).map(float))
def test_durations_come_back(seconds: float) -> None:
    assert read_duration(write_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(172_800, "2d"), (604_800, "1w"), (90, "90s"), (0, "0s"), (0.5, "500ms"), (5_400, "90m")]
)
def test_durations_are_written_in_their_largest_unit(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text
