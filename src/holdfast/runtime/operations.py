"""What an operator does: look for what is stuck and repair it, run the upkeep, examine the database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.core.migrate import read_migrated
from holdfast.core.program import Program
from holdfast.errors import Refused
from holdfast.runtime import rebuild, stuck
from holdfast.runtime.edge import check_text, take_id
from holdfast.runtime.maintenance import maintain
from holdfast.runtime.rebuild import Rebuilt, unknown
from holdfast.runtime.retention import Retention
from holdfast.runtime.stuck import Reenqueued
from holdfast.store import repair
from holdfast.store.desk import WORKER, Desk
from holdfast.store.doctor import Report, Thresholds, examine
from holdfast.store.maintenance import Upkeep
from holdfast.store.repair import Stuck
from holdfast.store.session import Session

if TYPE_CHECKING:
    from holdfast.runtime.engine.base import Base

OLD = timedelta(minutes=10)


class Operations:
    def __init__(self, engine: Base) -> None:
        self._engine = engine

    async def stuck(self, older_than: timedelta | float, after: str | UUID | None, limit: int) -> list[Stuck]:
        engine = self._engine
        older = older_than if isinstance(older_than, timedelta) else timedelta(seconds=older_than)
        return await stuck.list_stuck(engine.dsn, engine.org, older, None if after is None else take_id(after), limit)

    async def reenqueue(self, session: Session, id: bytes, by: str | None, reason: str | None) -> Reenqueued:
        engine, (program, _) = self._engine, await self._programs(session, id, by, reason)
        done = await stuck.reenqueue(engine.dsn, engine.org, program, id, by or "system", reason)
        engine.committer.snapshots.forget({id})
        engine.wake()
        return done

    async def rebuild(self, session: Session, id: bytes, by: str | None, reason: str | None, dry_run: bool) -> Rebuilt:
        engine, (program, earlier) = self._engine, await self._programs(session, id, by, reason)
        done = await rebuild.rebuild(
            engine.dsn, engine.org, program, id, by or "system", reason, dry_run=dry_run, earlier=earlier
        )
        engine.committer.snapshots.forget({id})
        engine.wake()
        return done

    async def maintain(self, retention: Retention | None) -> list[Upkeep]:
        return await maintain(self._engine.dsn, retention or Retention.from_environment())

    async def doctor(self, thresholds: dict[str, Any]) -> Report:
        unknown_names = sorted(thresholds.keys() - set(Thresholds.__struct_fields__))
        if unknown_names:
            raise Refused(
                f"There is no threshold {unknown_names[0]!r}.",
                code="THRESHOLD_UNKNOWN",
                hint=f"There are {', '.join(Thresholds.__struct_fields__)}.",
            )
        return await asyncio.to_thread(examine, self._engine.dsn, Thresholds(**thresholds))

    async def _programs(
        self, session: Session, id: bytes, by: str | None, reason: str | None
    ) -> tuple[Program, dict[bytes, Program]]:
        """The graph the instance is on, and those it was on before."""
        check_text(by, "actor")
        check_text(reason, "reason")
        catalog = self._engine.catalog
        present, earlier = await asyncio.to_thread(self._definitions, id)
        return await catalog.program(session, present), {d: await catalog.program(session, d) for d in earlier}

    def _definitions(self, id: bytes) -> tuple[bytes, list[bytes]]:
        with Desk(self._engine.dsn) as desk, desk.transaction(WORKER) as errand:
            found = repair.find_definition(errand, self._engine.org, id)
            if found is None:
                raise unknown(id)
            records = [read_migrated(detail) for detail in repair.list_migrations(errand, id)]
        return found, [bytes.fromhex(record.came_from.definition) for record in records]
