"""The one door to the log. Every module takes its logger here, and what it logs is safe to print.

    from holdfast.logs import logger

    log = logger("holdfast.worker")
    log.warning("The step %s of %s failed: %s", step, instance, error, extra={"flow": flow, "step": step})

Names, keys and errors may hold line breaks, escape sequences and marks of direction. The logger escapes them in the
record itself, before any handler sees it, so that a handler and a formatter of your own are as safe as ours:

- the message: with its arguments, on one line;
- text in `extra`: likewise; values of other types stay as they are, for handlers that write JSON;
- a traceback: below the line, each of its lines indented, so that none can pass for a record of its own.

A test refuses `logging.getLogger` everywhere else. Give values as arguments or in `extra`; never escape them yourself.
"""

from __future__ import annotations

import logging
from typing import Final

from holdfast.printable import INDENT, printable, printable_lines

_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}
_TRACEBACKS: Final = logging.Formatter()


def logger(name: str) -> logging.Logger:
    """Take the logger of this name, safe by construction."""
    found = logging.getLogger(name)
    found.addFilter(escape_record)  # adding it again changes nothing
    return found


def escape_record(record: logging.LogRecord) -> bool:
    """Make a record safe to print; records of plain text stay untouched, with their template and arguments."""
    text = _message(record)
    safe = printable(text)
    if safe != text:
        record.msg, record.args = safe, ()
    for name in record.__dict__.keys() - _OWN:
        value = record.__dict__[name]
        if isinstance(value, str):
            record.__dict__[name] = printable(value)
    if record.exc_info and not record.exc_text:
        record.exc_text = traceback_of(record)
    return True


def traceback_of(record: logging.LogRecord) -> str:
    """Format the traceback of a record, escaped and indented; empty without one."""
    return printable_lines(_TRACEBACKS.formatException(record.exc_info), INDENT) if record.exc_info else ""


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # the standard handlers complain of such a call with its raw arguments, and so forge lines
        record.msg, record.args = f"These arguments do not fit a log line: {record.msg}", ()
        return record.getMessage()
