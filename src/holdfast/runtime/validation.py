"""The edge: everything a user passes in is checked here once, so that the parts behind it need not doubt it.

A payload above 256 KiB is stored but said out loud: every commit that rewrites it pays for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from holdfast.errors import NotFound, Refused
from holdfast.logs import logger
from holdfast.payloads import WARN_BYTES, encode, is_large

log = logger("holdfast.payloads")

Id = str | UUID

MOST_KEY_BYTES: Final = 500
MOST_TEXT_BYTES: Final = 2000
MOST_ORG_BYTES: Final = 200
MOST_VERSION: Final = 2**31 - 1  # of a flow
MOST_CHANGES: Final = 2**63 - 1  # of an instance, whose version counts them
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")


def take_payload(value: Any, place: str, about: str = "") -> bytes:
    """The JSON of a value; refused with its place when it cannot be stored, warned about when it is large."""
    raw = encode(value, place)
    if is_large(raw):
        log.warning(
            "%s%s has %d bytes of JSON, more than %d; store the content elsewhere and pass a reference to it",
            place[:1].upper() + place[1:], f" of {about}" if about else "", len(raw), WARN_BYTES,
        )  # fmt: skip
    return raw


def take_id(id: Id) -> bytes:
    if isinstance(id, UUID):
        return id.bytes
    try:
        return UUID(id).bytes
    except (ValueError, AttributeError, TypeError):
        raise NotFound(
            f"{ascii(id)[:80]} is not an id.", code="ID_INVALID", hint="Ids are UUIDs, as the engine gave them."
        ) from None


def check_key(key: Any, what: str) -> None:
    """An idempotency, business or event key: it ends in an index, so it has a limit."""
    if key is not None and not _is_fit(key, MOST_KEY_BYTES):
        raise Refused(
            f"The {what} must have 1 to {MOST_KEY_BYTES} bytes of valid text.",
            code="KEY_INVALID",
            hint="Use a short text without NUL and half characters; hash longer ones.",
        )


def check_text(text: Any, what: str) -> None:
    """A name, an actor, a reason: text that is stored or looked up as it is."""
    if text is not None and not _is_fit(text, MOST_TEXT_BYTES):
        raise Refused(
            f"The {what} must have 1 to {MOST_TEXT_BYTES} bytes of valid text.",
            code="TEXT_INVALID",
            hint="Use text without NUL and half characters, or leave it out.",
        )


def take_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    given = several(names, what)
    for name in given:
        check_text(name or "", what)
    return given


def several(names: Iterable[str], what: str) -> tuple[str, ...]:
    """Read a list of names; a single string is one name, not a list of letters."""
    if not isinstance(names, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Refused(
            f"{ascii(names)[:80]} is no {what}, nor a list of them.",
            code="TEXT_INVALID",
            hint="Pass the names in a list, or leave it out.",
        )
    return (names,) if isinstance(names, str) else tuple(names)


def check_flag(value: Any, what: str) -> None:
    """Check a yes or no: a text such as "no" would count as yes."""
    if not isinstance(value, bool):
        raise Refused(
            f"`{what}` is {ascii(value)[:40]}, not true or false.", code="FLAG_INVALID", hint="Pass True or False."
        )


def check_moment(moment: Any, what: str) -> None:
    """Check a moment; without a time zone it is read as UTC."""
    if moment is not None and not isinstance(moment, datetime):
        raise Refused(
            f"The moment `{what}` is a datetime, not {ascii(moment)[:80]}.",
            code="MOMENT_INVALID",
            hint="Pass one, for example datetime.now(UTC) - timedelta(days=1), or leave it out.",
        )


def take_utc(moment: datetime | None, what: str) -> datetime | None:
    check_moment(moment, what)
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def check_version(version: Any, what: str = "version of the flow", least: int = 1, most: int = MOST_VERSION) -> None:
    """A version of a flow. A text that reads like one would find nothing, and say that it is not there."""
    if version is not None and not (type(version) is int and least <= version <= most):
        raise Refused(
            f"The {what} is a whole number, {least} or more.",
            code="VERSION_INVALID",
            hint="Give the number as it was told, not as text, or leave it out.",
        )


def check_expected(version: Any) -> None:
    """Check the version an instance is expected to have, as an earlier read returned it."""
    check_version(version, "expected version", 0, MOST_CHANGES)


def check_org(org: Any) -> None:
    if not _is_fit(org, MOST_ORG_BYTES):
        raise Refused(
            f"The name of an organisation must have 1 to {MOST_ORG_BYTES} bytes of valid text.",
            code="TEXT_INVALID",
            hint="Use a short name without NUL and half characters.",
        )


def _is_fit(text: Any, most: int) -> bool:
    return isinstance(text, str) and _UNFIT.search(text) is None and 1 <= len(text.encode()) <= most
