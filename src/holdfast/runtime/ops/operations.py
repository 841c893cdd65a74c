"""Operators' verbs: find and repair stuck instances, run the upkeep, examine the database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from holdfast.core.model.control_rows import Migrated, read_control
from holdfast.core.model.program import Program
from holdfast.errors import Refused
from holdfast.runtime.catalog import Catalog
from holdfast.runtime.commit.committer import Committer
from holdfast.runtime.ops import rebuild, stuck
from holdfast.runtime.ops.dead_letters import LetterFilter, wanted_of
from holdfast.runtime.ops.rebuild import Rebuilt, unknown
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.stuck import Reenqueued
from holdfast.runtime.ops.upkeep import maintain
from holdfast.runtime.validation import check_text, take_id
from holdfast.store.admin import repair
from holdfast.store.admin.connection import WORKER, Desk
from holdfast.store.admin.dead_letters import LetterOfTenant, list_all_dead_letters
from holdfast.store.admin.doctor import Report, Thresholds, examine
from holdfast.store.admin.repair import Stuck
from holdfast.store.admin.upkeep import Upkeep
from holdfast.store.pg.session import Session
from holdfast.store.reads.steps import check_page

OLD = timedelta(minutes=10)


class Owner(Protocol):
    """The engine as operators' verbs use it."""

    dsn: str
    org: str
    catalog: Catalog
    committer: Committer

    def wake(self) -> None: ...


class Operations:
    def __init__(self, engine: Owner) -> None:
        self._engine = engine

    async def stuck(
        self, older_than: timedelta | float, after: str | UUID | None, limit: int, *, all_tenants: bool
    ) -> list[Stuck]:
        engine = self._engine
        older = older_than if isinstance(older_than, timedelta) else timedelta(seconds=older_than)
        start = None if after is None else take_id(after)
        return await stuck.list_stuck(engine.dsn, None if all_tenants else engine.org, older, start, limit)

    async def all_dead_letters(
        self, filter: LetterFilter, after: str | UUID | None, limit: int
    ) -> list[LetterOfTenant]:
        check_page(limit, "dead letters")
        start = None if after is None else take_id(after)
        instance = None if filter.instance_id is None else take_id(filter.instance_id)
        return await asyncio.to_thread(
            list_all_dead_letters, self._engine.dsn, wanted_of(filter), instance, start, limit
        )

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
        """Read the graph of the instance, and those of the versions it was on before."""
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
            records = [read_control(Migrated, detail) for detail in repair.list_migrations(errand, id)]
        return found, [bytes.fromhex(record.came_from.definition) for record in records]
