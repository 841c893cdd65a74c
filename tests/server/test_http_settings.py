"""What an operator may choose, and what is refused before the server starts."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.server.limits import RateLimiter
from holdfast.server.refusals import RateLimited
from holdfast.server.settings import ServerSettings

WRONG: list[dict[str, Any]] = [
    {"most_body_bytes": 0},
    {"most_headers": 0},
    {"request_patience": -1},
    {"rate": -0.5},
    {"rate": 5, "burst": 0},
    {"port": 70_000},
    {"metrics": "sometimes"},
    {"stream_heartbeat": 0},
    {"stream_life": 0},
    {"cors_origins": ("app.example.com",)},
    {"cors_origins": ("https://app.example.com/path",)},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_impossible_settings_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError) as refusal:
        ServerSettings(**wrong)
    assert refusal.value.code == "SETTING_INVALID"
    assert next(iter(wrong)) in refusal.value.message


def test_a_bucket_fills_with_time_and_never_overflows() -> None:
    now = [0.0]
    limiter = RateLimiter(2.0, 3, clock=lambda: now[0])
    for _ in range(3):
        limiter.take("alice")
    with pytest.raises(RateLimited) as refusal:
        limiter.take("alice")
    assert refusal.value.retry_after == pytest.approx(0.5)
    now[0] = 0.5
    limiter.take("alice")
    now[0] = 100.0
    for _ in range(3):
        limiter.take("alice")
    with pytest.raises(RateLimited):
        limiter.take("alice")


def test_the_number_of_buckets_is_bounded_and_forgetting_refuses_nobody() -> None:
    limiter = RateLimiter(0.001, 1, most=2, clock=lambda: 0.0)
    for who in ("alice", "bob", "carol"):
        limiter.take(who)
    limiter.take("alice")
    with pytest.raises(RateLimited):
        limiter.take("carol")
