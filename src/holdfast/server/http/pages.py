"""Cursors: the place where the next page of a list begins, as text that only this list accepts.

A cursor carries the end of the last page and a short digest of the tenant, the list and its filters. It is no secret
and grants nothing, because every read names the tenant anyway; the digest only makes sure that a cursor of another
tenant, of another list or of other filters is refused instead of giving a wrong page.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Final, TypeVar
from uuid import UUID

import msgspec
from fastapi import Query

from holdfast.errors import Refused
from holdfast.server.http.replies import encoded

MOST_ITEMS: Final = 200
USUAL_ITEMS: Final = 50
MOST_BYTES: Final = 8 * 1024 * 1024  # of the items of a page, as JSON; the first one is always there
MOST_CURSOR: Final = 500
DIGEST: Final = 8

P = TypeVar("P")
T = TypeVar("T")

Cursor = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=MOST_CURSOR,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="The `next` of the page before; leave it out for the first page.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="How many items a page holds at most.")]


def shown_of(found: Sequence[T], limit: int) -> tuple[Sequence[T], T | None]:
    """Cut one more than a page's items to the page, and return the last of it if there is more."""
    shown = _within(found[:limit])
    return shown, shown[-1] if len(found) > len(shown) else None


def cut(items: Sequence[T], next: str | None, id_of: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """A page as the engine gives it, or its beginning; then the next page begins behind the last item that is left."""
    shown = _within(items)
    return shown, next if len(shown) == len(items) else id_of(shown[-1])


def _within(items: Sequence[T]) -> Sequence[T]:
    """Take as many items as fit, and at least one: a caller that follows the cursor gets every one of them."""
    size = 0
    for number, item in enumerate(items):
        size += len(encoded(item))
        if size > MOST_BYTES and number:
            return items[:number]
    return items


class Listing:
    """One list of one tenant with its filters: makes its cursors and reads them."""

    def __init__(self, tenant: str, list: str, /, **filters: object) -> None:
        asked = msgspec.json.encode([tenant, list, sorted((k, str(v)) for k, v in filters.items() if v is not None)])
        self._digest = sha256(asked).digest()[:DIGEST]

    def cursor(self, position: str | None) -> str | None:
        if position is None:
            return None
        return urlsafe_b64encode(self._digest + position.encode()).rstrip(b"=").decode()

    def cursor_behind(self, place: object | None) -> str | None:
        """Make the cursor of a list whose position has more than one value."""
        return None if place is None else self.cursor(msgspec.json.encode(place).decode())

    def place(self, cursor: str | None, kind: type[P]) -> P | None:
        """Read a cursor of `cursor_behind`. Any client can make a cursor up, so its content is checked."""
        position = self.position(cursor)
        try:
            return None if position is None else msgspec.json.decode(position, type=kind)
        except (msgspec.DecodeError, UnicodeError):
            raise _invalid() from None

    def start(self, cursor: str | None, after: UUID | None) -> str | None:
        """The start of the page: behind an item, for a caller that has kept its id, or by a cursor."""
        if after is None:
            return self.position(cursor)
        if cursor is not None:
            raise Refused(
                "Both `after` and `cursor` say where the page begins.",
                code="FILTER_INVALID",
                hint="Leave out one of them.",
            )
        return str(after)

    def position(self, cursor: str | None) -> str | None:
        if cursor is None:
            return None
        try:
            raw = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
            position = raw[DIGEST:].decode()
        except (binascii.Error, ValueError):
            raise _invalid() from None
        if raw[:DIGEST] != self._digest or not position:
            raise _invalid()
        return position


def _invalid() -> Refused:
    return Refused(
        "The cursor does not belong to this list.",
        code="CURSOR_INVALID",
        hint="Take `next` of the page before, with the same filters; leave it out to begin anew.",
    )
