from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.payloads.bounds import MAX_CONTEXT_BYTES
from holdfast.runtime.commit.options import Options
from holdfast.settings import Settings


def test_nothing_set_means_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings(dsn="", home=None, org="default", log_level="info")
    assert Settings.from_environment({"HOLDFAST_DSN": " ", "HOLDFAST_ORG": ""}) == Settings()


def test_everything_set() -> None:
    settings = Settings.from_environment(
        {
            "HOLDFAST_DSN": "postgresql://app@db/orders",
            "HOLDFAST_HOME": "/srv/holdfast",
            "HOLDFAST_ORG": "acme",
            "HOLDFAST_LOG": "DEBUG",
            "HOLDFAST_DIRECT_DSN": "postgresql://app@db:5432/orders",
            "HOLDFAST_POOLED": "1",
            "HOLDFAST_KEEP_EARLY": "3600",
            "HOLDFAST_AGING": "2.5",
            "HOLDFAST_RACE_PATIENCE": "0.5",
            "HOLDFAST_MAX_CONTEXT": "1048576",
            "HOLDFAST_FAST_PATHS": "no",
            "HOLDFAST_ACK_PENDING_RESEND": "20",
            "HOLDFAST_ACK_DELIVERED_RESEND": "60.5",
            "HOLDFAST_ACK_MAX_ATTEMPTS": "5",
            "HOLDFAST_ACK_PAGE": "50",
            "HOLDFAST_CONSUMER_TTL": "10",
            "HOLDFAST_CONSUMER_RECHECK": "15",
        }
    )
    assert settings == Settings(
        "postgresql://app@db/orders",
        Path("/srv/holdfast"),
        "acme",
        "debug",
        "postgresql://app@db:5432/orders",
        True,
        keep_early=3600.0,
        aging=2.5,
        race_patience=0.5,
        max_context=1024 * 1024,
        fast_paths=False,
        ack_pending_resend=20.0,
        ack_delivered_resend=60.5,
        ack_max_attempts=5,
        ack_page=50,
        consumer_ttl=10.0,
        consumer_recheck=15.0,
    )


@pytest.mark.parametrize("value", ["off", "OFF", "0", "0.0"])
def test_aging_can_be_switched_off(value: str) -> None:
    assert Settings.from_environment({"HOLDFAST_AGING": value}).aging == 0


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_ORG", "acme")
    assert Settings.from_environment().org == "acme"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HOLDFAST_DSN", "mysql://root:hunter2@db/orders"),
        ("HOLDFAST_HOME", "data/holdfast"),
        ("HOLDFAST_ORG", "Acme Inc."),
        ("HOLDFAST_ORG", "x" * 64),
        ("HOLDFAST_LOG", "loud"),
        ("HOLDFAST_KEEP_EARLY", "a week"),
        ("HOLDFAST_KEEP_EARLY", "-1"),
        ("HOLDFAST_KEEP_EARLY", "nan"),
        ("HOLDFAST_RACE_PATIENCE", "-1"),
        ("HOLDFAST_ACK_PENDING_RESEND", "0"),
        ("HOLDFAST_ACK_MAX_ATTEMPTS", "0"),
        ("HOLDFAST_ACK_MAX_ATTEMPTS", "ten"),
        ("HOLDFAST_ACK_PAGE", "10001"),
        ("HOLDFAST_CONSUMER_TTL", "0"),
        ("HOLDFAST_RACE_PATIENCE", "long"),
        ("HOLDFAST_MAX_CONTEXT", "1 MiB"),
        ("HOLDFAST_MAX_CONTEXT", "0"),
        ("HOLDFAST_MAX_CONTEXT", "9" * 5000),
        ("HOLDFAST_AGING", "fast"),
        ("HOLDFAST_AGING", "-1"),
        ("HOLDFAST_AGING", "nan"),
        ("HOLDFAST_AGING", "inf"),
        ("HOLDFAST_DIRECT_DSN", "mysql://root:hunter2@db/orders"),
        ("HOLDFAST_POOLED", "maybe"),
        ("HOLDFAST_FAST_PATHS", "auto"),
        ("HOLDFAST_SHARED_SECRETS", "billing,*"),
        ("HOLDFAST_SHARED_SECRETS", "acme__billing"),
        ("HOLDFAST_SHARED_SECRETS", "acme-_billing"),
    ],
)
def test_a_bad_value_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(HoldfastError) as refused:
        Settings.from_environment({variable: value})
    assert refused.value.code == "SETTING_INVALID"
    assert refused.value.message.startswith(variable)
    assert refused.value.hint
    assert "hunter2" not in str(refused.value)


def test_the_limit_of_the_settings_is_that_of_the_kernel() -> None:
    assert Settings().max_context == MAX_CONTEXT_BYTES == Options().max_context
