"""What the environment may say, read and checked once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError

LONGEST_SECONDS = 100 * 365.25 * 86_400
FASTEST_AGING = 1_000_000  # points per second: more would make every priority equal
LOG_LEVELS = ("debug", "info", "warning", "error")
_ORG = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,62}")
_POOLED = {"": None, "auto": None, "1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
_URL_SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Settings:
    """`dsn` empty means: use the embedded PostgreSQL; `home` None means: its default place.

    `direct_dsn` leads past a pooler, for LISTEN; `pooled` None means: find out whether `dsn` leads through one.
    """

    dsn: str = ""
    home: Path | None = None
    org: str = "default"
    log_level: str = "info"
    direct_dsn: str = ""
    pooled: bool | None = None
    retention: str = ""  # what is kept how long, as `Retention.parse` reads it
    keep_early: float = 7 * 24 * 3600.0  # seconds an event waits for its wait
    aging: float = 0.5  # points of priority that queued work gains per second; 0: none

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environment is None else environment
        default = cls()

        def given(name: str, otherwise: str = "") -> str:
            return source.get(name, "").strip() or otherwise

        return cls(
            dsn=_dsn("HOLDFAST_DSN", given("HOLDFAST_DSN")),
            home=_home(given("HOLDFAST_HOME")),
            org=_org(given("HOLDFAST_ORG", default.org)),
            log_level=_log_level(given("HOLDFAST_LOG", default.log_level)),
            direct_dsn=_dsn("HOLDFAST_DIRECT_DSN", given("HOLDFAST_DIRECT_DSN")),
            pooled=_pooled(given("HOLDFAST_POOLED")),
            retention=given("HOLDFAST_RETENTION"),
            keep_early=_seconds("HOLDFAST_KEEP_EARLY", given("HOLDFAST_KEEP_EARLY", str(default.keep_early))),
            aging=_aging(given("HOLDFAST_AGING", str(default.aging))),
        )


def _dsn(variable: str, value: str) -> str:
    if value and not value.startswith(_URL_SCHEMES) and "=" not in value:
        # The value itself stays out of the message: it may hold a password.
        raise _invalid(
            variable,
            "is not a PostgreSQL connection string.",
            "Write postgresql://user@host/database, or leave it empty for the embedded server.",
        )
    return value


def _home(value: str) -> Path | None:
    if not value:
        return None
    if "\0" in value or not Path(value).expanduser().is_absolute():
        raise _invalid(
            "HOLDFAST_HOME",
            f"is {value!r}, not an absolute path.",
            "A relative one would mean another directory in every working directory; write the full path.",
        )
    return Path(value).expanduser()


def _org(value: str) -> str:
    if not _ORG.fullmatch(value):
        raise _invalid(
            "HOLDFAST_ORG",
            f"is {value!r}, not the name of an organisation.",
            "Use up to 63 lower-case letters, digits, dots, hyphens and underscores, starting with a letter or digit.",
        )
    return value


def _log_level(value: str) -> str:
    if value.lower() not in LOG_LEVELS:
        raise _invalid("HOLDFAST_LOG", f"is {value!r}, not a log level.", f"Use one of {', '.join(LOG_LEVELS)}.")
    return value.lower()


def _pooled(value: str) -> bool | None:
    if value.lower() not in _POOLED:
        raise _invalid("HOLDFAST_POOLED", f"is {value!r}, neither yes nor no.", "Use 1 or 0, or leave it out.")
    return _POOLED[value.lower()]


def _seconds(variable: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_SECONDS:  # also false for what is not a number
        raise _invalid(variable, f"is {value!r}, not a number of seconds.", "Write 0 to 100 years in seconds.")
    return seconds


def _aging(value: str) -> float:
    if value.lower() == "off":
        return 0.0
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= FASTEST_AGING:
        raise _invalid(
            "HOLDFAST_AGING",
            f"is {value!r}, not a number of points per second.",
            f"Write 0 to {FASTEST_AGING}, or off.",
        )
    return rate


def _invalid(variable: str, problem: str, hint: str) -> HoldfastError:
    return HoldfastError(f"{variable} {problem}", code="SETTING_INVALID", hint=hint, variable=variable)
