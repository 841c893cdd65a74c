"""Durations are written short."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.views.spans import spoken


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 ms"),
        (0.0125, "12 ms"),
        (3.24, "3.2 s"),
        (252, "4m 12s"),
        (3 * 3600 + 300, "3h 05m"),
        (52 * 3600, "2d 4h"),
    ],
)
def test_spans_are_short(seconds: float, words: str) -> None:
    assert spoken(timedelta(seconds=seconds)) == words
