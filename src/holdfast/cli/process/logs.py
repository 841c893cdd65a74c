"""The log of the commands: one line per record on standard error, for people or for machines."""

from __future__ import annotations

import json as text_json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.logs import escape_record, traceback_of
from holdfast.printable import printable
from holdfast.settings import LOG_LEVELS

FIELDS: Final = (
    "flow",
    "instance",
    "step",
    "attempt",
    "error",
    "next",
    "tenant",
    "signal",
    "request_id",
)  # fields of a record's `extra` that its line shows
_HANDLER: Final = "holdfast"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # ASCII survives any terminal, pipe and collector; a reader of JSON decodes it anyway.
        return text_json.dumps(line, ensure_ascii=True, default=str)


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        escape_record(record)  # also of loggers that are not ours
        extra = "".join(f" {name}={printable(value)}" for name, value in _extra(record).items())
        line = f"{_moment(record)} {record.levelname.lower():<7} {record.name}: {record.getMessage()}{extra}"
        return f"{line}\n{traceback_of(record)}" if record.exc_info else line


def configure(json: bool = False, level: str = "info") -> None:
    """Send every record of this process to standard error; called again, it replaces its earlier choice."""
    if level.lower() not in LOG_LEVELS:
        raise HoldfastError(
            f"{level!r} is not a log level.", code="SETTING_INVALID", hint=f"Use one of {', '.join(LOG_LEVELS)}."
        )
    handler = logging.StreamHandler()
    handler.name = _HANDLER
    handler.setFormatter(JsonFormatter() if json else PlainFormatter())
    root = logging.getLogger()
    for earlier in [found for found in root.handlers if found.name == _HANDLER]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(level.upper())


def _extra(record: logging.LogRecord) -> dict[str, str]:
    found = {name: getattr(record, name, None) for name in FIELDS}
    return {name: str(value) for name, value in found.items() if value is not None}


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
