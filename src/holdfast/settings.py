"""What the environment may say, read and checked once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError

LOG_LEVELS = ("debug", "info", "warning", "error")
_ORG = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,62}")
_URL_SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Settings:
    """`dsn` empty means: use the embedded PostgreSQL; `home` None means: its default place."""

    dsn: str = ""
    home: Path | None = None
    org: str = "default"
    log_level: str = "info"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environment is None else environment
        default = cls()

        def given(name: str, otherwise: str = "") -> str:
            return source.get(name, "").strip() or otherwise

        return cls(
            dsn=_dsn(given("HOLDFAST_DSN")),
            home=_home(given("HOLDFAST_HOME")),
            org=_org(given("HOLDFAST_ORG", default.org)),
            log_level=_log_level(given("HOLDFAST_LOG", default.log_level)),
        )


def _dsn(value: str) -> str:
    if value and not value.startswith(_URL_SCHEMES) and "=" not in value:
        # The value itself stays out of the message: it may hold a password.
        raise _invalid(
            "HOLDFAST_DSN",
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


def _invalid(variable: str, problem: str, hint: str) -> HoldfastError:
    return HoldfastError(f"{variable} {problem}", code="SETTING_INVALID", hint=hint, variable=variable)
