"""Versions as entity tags: `ETag: "7"` is version 7 of an instance, and `If-Match: "7"` changes only that one.

A representation that may change while the version stays (the holder of a task, the actions of this person) adds a
digest of itself: `"7-1f0c…"`. A change compares the version only, a look compares all of it.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from starlette.requests import Request

from holdfast.errors import Conflict
from holdfast.server.http.refusals import PreconditionFailed, PreconditionRequired
from holdfast.server.settings import ServerSettings

_TAG: Final = re.compile(r'"(\d{1,18})(?:-[0-9a-f]+)?"')
_VERSION_CONFLICT: Final = "VERSION_CONFLICT"


def etag(version: int, body: bytes | None = None) -> str:
    """The tag of a version, or of exactly this representation of it."""
    if body is None:
        return f'"{version}"'
    return f'"{version}-{blake2b(body, digest_size=8).hexdigest()}"'


def expected_version(request: Request, current: int | None = None) -> int | None:
    """The version that If-Match asks for, None for any. `current` decides where it names several."""
    given = request.headers.getlist("if-match")
    if not given:
        settings: ServerSettings = request.app.state.settings
        if settings.needs_if_match:
            raise PreconditionRequired(hint="Read the instance and send its ETag in If-Match, or * for any version.")
        return None
    tags = [tag.strip() for line in given for tag in line.split(",")]
    if "*" in tags:
        return None
    versions = [int(found[1]) for tag in tags if (found := _TAG.fullmatch(tag))]  # weak tags never match a change
    if not versions:
        raise PreconditionFailed("If-Match names no version of this instance.", hint="Send the ETag as it came.")
    return current if current in versions else versions[0]


def is_known(request: Request, tag: str) -> bool:
    """Check If-None-Match for this representation: then 304."""
    known = [
        part.strip().removeprefix("W/") for line in request.headers.getlist("if-none-match") for part in line.split(",")
    ]
    return "*" in known or tag in known


def as_precondition(refusal: Conflict, expected: int | None) -> Conflict | PreconditionFailed:
    """Convert a conflict of versions to 412 if the caller named the version in a header."""
    if expected is None or refusal.code != _VERSION_CONFLICT:
        return refusal
    return PreconditionFailed(hint="Read it again, and decide again.", expected=expected)
