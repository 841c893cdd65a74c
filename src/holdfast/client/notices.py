"""Notices of a server: a list, and each one as it is committed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.client.connection import Connection, some_id_part, taken
from holdfast.store.notices import Notice, NoticePage

REMEMBERED: Final = 20_000  # ids of notices that a returning stream may send again


class ClientNotices:
    def __init__(self, server: Connection) -> None:
        self._server = server

    def list(
        self,
        *,
        code: str | None = None,
        kind: str | None = None,
        instance: str | None = None,
        consumer: str | None = None,
        since: datetime | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> NoticePage:
        """Read up to `limit` notices, newest first, fewer once a page is short; `next` continues the list."""
        query = _query(code, kind, instance, consumer)
        query["since"] = None if since is None else since.isoformat()
        found, next = self._server.some("/notices", limit, after, query)
        return NoticePage([taken(Notice, item) for item in found], next)

    def follow(
        self,
        *,
        after: str | None = None,
        code: str | None = None,
        kind: str | None = None,
        instance: str | None = None,
        consumer: str | None = None,
    ) -> Iterator[Notice]:
        """Yield notices as they are committed, from now on or from behind `after`, until the caller stops."""
        last = some_id_part(after)
        known: OrderedDict[str, None] = OrderedDict()
        while True:
            headers = {} if last is None else {"Last-Event-ID": last}
            for data in self._server.events("/notices/stream", _query(code, kind, instance, consumer), headers):
                notice = taken(Notice, msgspec.json.decode(data))
                last = notice.id if last is None else max(last, notice.id)
                if notice.id not in known:
                    known[notice.id] = None
                    if len(known) > REMEMBERED:
                        known.popitem(last=False)
                    yield notice


def _query(code: str | None, kind: str | None, instance: str | None, consumer: str | None) -> dict[str, Any]:
    return {"code": code, "kind": kind, "instance": some_id_part(instance), "consumer": consumer}
