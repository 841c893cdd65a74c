"""A session whose statements are counted."""

from __future__ import annotations

from typing import Any

from holdfast.store.pg.session import Session


class Watched:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.sent: list[str] = []

    async def once(self, *queries: Any) -> Any:
        self.sent += [query.name.decode() for query in queries]
        return await self._session.once(*queries)
