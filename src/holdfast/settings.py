"""Settings from the environment, read and checked once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError

LONGEST_SECONDS = 100 * 365.25 * 86_400
FASTEST_AGING = 1_000_000  # points per second: more would make every priority equal
SMALLEST_CONTEXT, LARGEST_CONTEXT = 64 * 1024, 64 * 1024 * 1024
LOG_LEVELS = ("debug", "info", "warning", "error")
_ORG = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,62}")
_APP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
SECRET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_SWITCH = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False}
_POOLED = {"": None, "auto": None, **_SWITCH}
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
    app: str = ""  # whose the handlers of this process are; empty: the package or script of each
    aging: float = 0.5  # points of priority that queued work gains per second; 0: none
    shared_secrets: frozenset[str] = frozenset()  # names, as variables spell them, of what every organisation may use
    race_patience: float = 2.0  # seconds a caller tries again to change what others change
    max_context: int = 4 * 1024 * 1024  # what an instance may keep of what its steps give
    ack_pending_resend: float = 40.0  # seconds until a fact that no consumer received is sent again
    ack_delivered_resend: float = 240.0  # seconds until one that was received and not processed is sent again
    ack_max_attempts: int = 10  # of a consumer that names no number of its own
    ack_page: int = 200  # facts of one consumer in one claim
    consumer_ttl: float = 30.0  # seconds without a beat before a consumer counts as down
    consumer_recheck: float = 60.0  # seconds between two probes of a pushed consumer that could not be reached
    stale_after: float | None = None  # seconds a machine may rest before that is reported; None: any time
    fast_paths: bool = True  # plain steps are decided and written the short way

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environment is None else environment
        default = cls()

        def given(name: str, otherwise: str = "") -> str:
            return source.get(name, "").strip() or otherwise

        def seconds(name: str, otherwise: float) -> float:
            return _seconds(name, given(name, str(otherwise)))

        def above_zero(name: str, otherwise: float) -> float:
            return _above_zero(name, seconds(name, otherwise))

        def count(name: str, otherwise: int, most: int) -> int:
            return _count(name, given(name, str(otherwise)), most)

        return cls(
            dsn=_dsn("HOLDFAST_DSN", given("HOLDFAST_DSN")),
            home=_home(given("HOLDFAST_HOME")),
            org=_org(given("HOLDFAST_ORG", default.org)),
            log_level=_log_level(given("HOLDFAST_LOG", default.log_level)),
            direct_dsn=_dsn("HOLDFAST_DIRECT_DSN", given("HOLDFAST_DIRECT_DSN")),
            pooled=_pooled(given("HOLDFAST_POOLED")),
            app=_app(given("HOLDFAST_APP")),
            retention=given("HOLDFAST_RETENTION"),
            keep_early=seconds("HOLDFAST_KEEP_EARLY", default.keep_early),
            aging=_aging(given("HOLDFAST_AGING", str(default.aging))),
            shared_secrets=_shared_secrets(given("HOLDFAST_SHARED_SECRETS")),
            race_patience=seconds("HOLDFAST_RACE_PATIENCE", default.race_patience),
            max_context=_max_context(given("HOLDFAST_MAX_CONTEXT", str(default.max_context))),
            stale_after=_stale_after(given("HOLDFAST_STALE_AFTER", "off")),
            ack_pending_resend=above_zero("HOLDFAST_ACK_PENDING_RESEND", default.ack_pending_resend),
            ack_delivered_resend=above_zero("HOLDFAST_ACK_DELIVERED_RESEND", default.ack_delivered_resend),
            ack_max_attempts=count("HOLDFAST_ACK_MAX_ATTEMPTS", default.ack_max_attempts, 1_000_000),
            ack_page=count("HOLDFAST_ACK_PAGE", default.ack_page, 10_000),
            consumer_ttl=above_zero("HOLDFAST_CONSUMER_TTL", default.consumer_ttl),
            consumer_recheck=above_zero("HOLDFAST_CONSUMER_RECHECK", default.consumer_recheck),
            fast_paths=_fast_paths(given("HOLDFAST_FAST_PATHS", "1")),
        )


def normal_secret_name(name: str) -> str:
    """A secret's name as a variable spells it."""
    return name.upper().replace("-", "_")


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


def _app(value: str) -> str:
    if value and not _APP.fullmatch(value):
        raise _invalid(
            "HOLDFAST_APP",
            f"is {value!r}, not the name of an application.",
            "Use up to 63 letters, digits, dots, hyphens and underscores, starting with a letter or digit.",
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


def _fast_paths(value: str) -> bool:
    if value.lower() not in _SWITCH:
        raise _invalid("HOLDFAST_FAST_PATHS", f"is {value!r}, neither yes nor no.", "Use 1 or 0, or leave it out.")
    return _SWITCH[value.lower()]


def _seconds(variable: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_SECONDS:  # also false for what is not a number
        raise _invalid(variable, f"is {value!r}, not a number of seconds.", "Write 0 to 100 years in seconds.")
    return seconds


def _above_zero(variable: str, seconds: float) -> float:
    if seconds == 0:
        raise _invalid(variable, "is 0.", "Write a time above 0 in seconds.")
    return seconds


def _count(variable: str, value: str, most: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= most):
        raise _invalid(variable, f"is {value!r}, not a number from 1 to {most}.", "Write digits alone.")
    return int(value)


def _stale_after(value: str) -> float | None:
    if value.lower() == "off":
        return None
    seconds = _seconds("HOLDFAST_STALE_AFTER", value)
    if not seconds:
        raise _invalid("HOLDFAST_STALE_AFTER", "is 0.", "Write a time above 0 in seconds, or off.")
    return seconds


def _max_context(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not SMALLEST_CONTEXT <= int(value[:20]) <= LARGEST_CONTEXT:
        raise _invalid(
            "HOLDFAST_MAX_CONTEXT",
            f"is {value!r}, not a number of bytes.",
            f"Write {SMALLEST_CONTEXT} to {LARGEST_CONTEXT}.",
        )
    return int(value)


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


def _shared_secrets(value: str) -> frozenset[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if not SECRET_NAME.fullmatch(name) or "__" in normal_secret_name(name):
            raise _invalid(
                "HOLDFAST_SHARED_SECRETS",
                f"names {name!r}, which is not the name of a secret that can be shared.",
                "Write names such as billing,webhook: letters, digits, single `_` and `-`, without HOLDFAST_SECRET_.",
            )
    return frozenset(map(normal_secret_name, names))


def _invalid(variable: str, problem: str, hint: str) -> HoldfastError:
    return HoldfastError(f"{variable} {problem}", code="SETTING_INVALID", hint=hint, variable=variable)
