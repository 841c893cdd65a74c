"""The look for stale instances, as part of every worker's scan."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.logs import logger
from holdfast.runtime.machines.board import NoticeBoard
from holdfast.store.notices import DEFAULT_STATE_STALE, MONITOR_ERROR
from holdfast.store.pg.session import DatabaseError, Session
from holdfast.store.staleness import PAGE, check_stale

log = logger("holdfast.staleness")

TAKEN: Final = 0.2  # seconds until the next look where another engine has what is due
AFTER_ERROR: Final = 30.0


class Staleness:
    """Look when something is due. A failure is reported and delays the next look; the scan around it goes its way."""

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self._not_before = 0.0

    @property
    def is_resting(self) -> bool:
        """Check if the last look failed a short time ago."""
        return asyncio.get_running_loop().time() < self._not_before

    async def look(self, session: Session, due: float | None) -> float | None:
        """Look if something is due in `due` seconds or was before; the seconds until the next look, as far as known."""
        if due is None or due > 0:
            return due
        if self.is_resting:
            return self._not_before - asyncio.get_running_loop().time()
        try:
            while True:
                looked = await check_stale(session)
                if looked.notices:
                    self._board.count(DEFAULT_STATE_STALE, looked.notices)
                    self._board.written()
                if looked.instances < PAGE:
                    return 0.0 if looked.instances else TAKEN
        except DatabaseError as failure:
            log.warning("The look for instances that stand still failed: %s", failure)
            self._not_before = asyncio.get_running_loop().time() + AFTER_ERROR
            message = f"The look for instances that stand still failed with SQLSTATE {failure.sqlstate}."
            self._board.tell_error(MONITOR_ERROR, message, detail={"loop": "staleness", "sqlstate": failure.sqlstate})
            return AFTER_ERROR
