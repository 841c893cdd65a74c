"""What an operator may choose, and what is refused before the server starts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.server.access.limits import RateLimiter
from holdfast.server.http.refusals import RateLimited
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


def test_every_limit_is_settable_from_outside() -> None:
    told = {
        "HOLDFAST_SERVER_MOST_BODY_BYTES": " 2048 ",
        "HOLDFAST_SERVER_REQUEST_PATIENCE": "2.5",
        "HOLDFAST_SERVER_NEEDS_IF_MATCH": "yes",
        "HOLDFAST_SERVER_CORS_ORIGINS": "https://a.example, https://b.example",
        "HOLDFAST_SERVER_BURST": "7",
        "HOLDFAST_SERVER_RATE": "5",
        "HOLDFAST_SERVER_METRICS": "",
        "HOLDFAST_ORG": "acme",
    }
    found = ServerSettings.from_environment(told, rate=3, port=0)
    assert (found.most_body_bytes, found.request_patience, found.needs_if_match) == (2048, 2.5, True)
    assert found.cors_origins == ("https://a.example", "https://b.example")
    assert (found.burst, found.rate, found.port, found.metrics) == (7, 3, 0, "off")  # what is said outright comes first
    for field in fields(ServerSettings):
        if field.name not in ("host", "port"):
            said = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
            again = ServerSettings.from_environment({f"HOLDFAST_SERVER_{field.name.upper()}": said})
            assert getattr(again, field.name) == field.default


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MOST_BODY_BYTES", "1 MiB"),
        ("MOST_BODY_BYTES", "-1"),
        ("MOST_STREAMS", "2.5"),
        ("REQUEST_PATIENCE", "nan"),
        ("REQUEST_PATIENCE", "inf"),
        ("NEEDS_IF_MATCH", "perhaps"),
        ("METRICS", "sometimes"),
        ("CORS_ORIGINS", "app.example.com"),
        ("MOST_BODY", "5"),
        ("PORT", "80"),
    ],
)
def test_nonsense_from_outside_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(HoldfastError) as refusal:
        ServerSettings.from_environment({f"HOLDFAST_SERVER_{variable}": text})
    assert refusal.value.code == "SETTING_INVALID"
    assert variable.lower() in refusal.value.message.lower()


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
