"""Durations are written short, or in words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.views.spans import in_words, spoken


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


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (0.5, "0.5 seconds"),
        (1, "1 second"),
        (60, "1 minute"),
        (5400, "1 hour 30 minutes"),
        (129_600, "1 day 12 hours"),
        (172_800.25, "2 days 0.25 seconds"),
        (31_536_000, "365 days"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
