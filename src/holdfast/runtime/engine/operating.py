"""Verbs of operators: effects, dead letters, stuck instances, upkeep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast.runtime.effects import outbox
from holdfast.runtime.effects.outbox import EffectPage
from holdfast.runtime.engine.reading import Reading
from holdfast.runtime.ops.dead_letters import Inputs, LetterFilter, LetterPage, Letters, Resolved
from holdfast.runtime.ops.migration import MOST, Migration, Migrator, Which
from holdfast.runtime.ops.operations import OLD
from holdfast.runtime.ops.rebuild import Rebuilt
from holdfast.runtime.ops.rerun import Wish, rerun
from holdfast.runtime.ops.retention import Retention
from holdfast.runtime.ops.stuck import Reenqueued
from holdfast.runtime.validation import Id, check_expected, take_id, take_payload
from holdfast.store.admin.dead_letters import LetterOfTenant
from holdfast.store.admin.doctor import Report
from holdfast.store.admin.repair import Stuck
from holdfast.store.admin.upkeep import Upkeep
from holdfast.store.dead_letters import DeadLetter
from holdfast.store.effects import Effect, EffectPlace, WantedEffects
from holdfast.store.queue.workers import WorkerProcess, list_workers
from holdfast.store.reads.instances import Instance
from holdfast.store.reads.steps import check_page


class Operating(Reading):
    async def effects(
        self, instance_id: Id, *, after: EffectPlace | None = None, limit: int | None = None
    ) -> list[Effect]:
        """The effects of an instance, oldest first, each with the evidence of its last attempt.

        With `limit` a page of them; `after` is the `place_of_effect` the last one of the page before.
        """
        await self.get(instance_id)
        return await outbox.effects_of(self._opened(), self.org, instance_id, after, limit)

    async def list_effects(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        flow: str | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> EffectPage:
        """Effects of all instances, newest first; without `status` those that were not delivered, dead ones included.

        `after` is the `next` of the page before. By `kind` or `flow`, a page may hold less than `limit` although
        there are more: only `next` tells.
        """
        wanted = WantedEffects(kind=kind, flow=flow)
        return await outbox.list_effects(self._opened(), self.org, status, wanted, after, limit)

    async def get_effect(self, effect_id: Id) -> Effect:
        """One effect with the evidence of its last attempt."""
        return await outbox.get_effect(self._opened(), self.org, effect_id)

    async def replay_effect(self, effect_id: Id, *, by: str | None = None, reason: str | None = None) -> Effect:
        """Let a dead effect be delivered again, under the same key and with as many attempts as it had at first."""
        replayed = await outbox.replay_effect(self._opened(), self.org, effect_id, by, reason)
        self._announce()
        return replayed

    # --- dead letters ----------------------------------------------------------------------------------------------

    async def dead_letters(
        self,
        instance_id: Id | None = None,
        *,
        with_reason: str | None = None,
        source: str | None = None,
        flow: str | None = None,
        step: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        consumer: str | None = None,
        environment: str | None = None,
        after: Id | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Open dead letters, newest first; `after` is the id of the last one of the page before.

        `consumer` and `environment` are those of deliveries that failed.
        """
        filter = LetterFilter(
            instance_id=instance_id,
            with_reason=with_reason,
            source=source,
            flow=flow,
            step=step,
            error=error,
            since=since,
            consumer=consumer,
            environment=environment,
        )
        return await self._letters.full_page(filter, after, limit)

    async def find_dead_letters(self, filter: LetterFilter, *, after: Id | None = None, limit: int = 50) -> LetterPage:
        """A page of dead letters, at a bounded cost: a page may be short although there are more, only `next` tells."""
        return await self._letters.page(filter, after, limit)

    async def all_dead_letters(
        self, filter: LetterFilter | None = None, *, after: Id | None = None, limit: int = 50
    ) -> Sequence[LetterOfTenant]:
        """Open dead letters of all organisations, newest first, each with its tenant and the process that gave up: for
        operators whose login may be `holdfast_worker`. `after` is the id of the last one of the page before."""
        self._opened()
        return await self._operations.all_dead_letters(filter or LetterFilter(), after, limit)

    async def dead_letter(self, letter_id: Id) -> DeadLetter:
        return await self._letters.get(letter_id)

    async def requeue(
        self, letter_id: Id, input: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> DeadLetter:
        """Put back what one dead letter is about; answers the letter as it is then."""
        return await self._letters.requeue(letter_id, input, by, reason)

    async def replay_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: LetterFilter | None = None,
        inputs: Inputs | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        rate: float | None = None,
    ) -> Resolved:
        """Put back what dead letters are about: those with these ids, or all open ones that the filter lets through.

        `inputs` has new inputs for steps, by the id of their letter. All steps of one instance run again in one commit,
        all or none, except those that nothing can be done about: these are left, and the answer says why. So do its
        failed deliveries. `rate` is the number of letters per second, oldest first.
        """
        return await self._letters.replay(ids, filter, by, reason, inputs=inputs, dry_run=dry_run, rate=rate)

    async def discard_dead_letters(
        self,
        ids: Iterable[Id] | None = None,
        *,
        filter: LetterFilter | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
    ) -> Resolved:
        """Let go of dead letters: those with these ids, or all open ones that the filter lets through."""
        return await self._letters.discard(ids, filter, by, reason, dry_run=dry_run)

    @property
    def _letters(self) -> Letters:
        return Letters(self._opened(), self.org, self._announce, lambda item: self.committer.apply(item))

    # --- operations ------------------------------------------------------------------------------------------------

    async def stuck(
        self,
        *,
        older_than: timedelta | float = OLD,
        after: Id | None = None,
        limit: int = 50,
        all_tenants: bool = False,
    ) -> Sequence[Stuck]:
        """Unfinished instances that nothing will move any more, by id; `after` is the last one of the page before.

        With `all_tenants` those of all organisations, for operators whose login may be `holdfast_worker`.
        """
        self._opened()
        return await self._operations.stuck(older_than, after, limit, all_tenants=all_tenants)

    async def reenqueue(self, instance_id: Id, *, by: str | None = None, reason: str | None = None) -> Reenqueued:
        """Put what a stuck instance waits for back into the queues: open steps, timers, news of a sub-flow."""
        return await self._operations.reenqueue(self._opened(), take_id(instance_id), by, reason)

    async def rebuild(
        self, instance_id: Id, *, by: str | None = None, reason: str | None = None, dry_run: bool = False
    ) -> Rebuilt:
        """Make an instance's snapshot anew from its steps; refused when anything would be lost."""
        return await self._operations.rebuild(self._opened(), take_id(instance_id), by, reason, dry_run)

    async def migrate(
        self,
        flow: str,
        *,
        to: int,
        from_version: int | None = None,
        instances: Sequence[Id] | None = None,
        nodes: Mapping[str, str] | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        after: Id | None = None,
        limit: int = MOST,
    ) -> Migration:
        """Move unfinished instances to another version. One that cannot move stays unchanged; the report says why.

        `nodes` maps old nodes to new ones, where names differ. `dry_run` only reports. At most `limit` instances are
        looked at; `after` is the `next` of the report before.
        """
        migrator = Migrator(self, self._opened(), by, reason, dry_run=dry_run)
        return await migrator.migrate(Which(flow, from_version, to, instances, after, limit), to, nodes)

    async def revert_migration(
        self,
        flow: str,
        *,
        from_version: int,
        instances: Sequence[Id] | None = None,
        by: str | None = None,
        reason: str | None = None,
        dry_run: bool = False,
        after: Id | None = None,
        limit: int = MOST,
    ) -> Migration:
        """Let instances that were migrated to `from_version` go back to the version each of them came from."""
        migrator = Migrator(self, self._opened(), by, reason, dry_run=dry_run)
        return await migrator.revert(Which(flow, from_version, None, instances, after, limit))

    async def rerun(
        self,
        instance_id: Id,
        *,
        from_step: str,
        input: Any = None,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        if_version: int | None = None,
        key: str | None = None,
    ) -> Instance:
        """Run an instance again from a step it has been at, with what the step got then or with another input.

        One that is over stays over: the answer is a new instance that begins at the step. `token` names the visit
        where several branches have been there. The same `key` again, with the same wish, answers what the first call
        set in motion.
        """
        check_expected(if_version)
        view = await self.get(instance_id)
        raw = None if input is None else take_payload(input, "the input", f"{from_step!r}")
        wish = Wish(from_step, token, raw, by or "system", reason, view.business_key, if_version, key)
        id = await rerun(self, self._opened(), take_id(view.id), wish)
        self._announce()
        return await self.get(UUID(bytes=id))

    async def workers(self, *, limit: int = 200) -> list[WorkerProcess]:
        """The worker processes of all organisations, newest first: what they serve, and how long their lease lasts."""
        return await list_workers(self._opened(), check_page(limit, "workers"))

    async def maintain(self, retention: Retention | None = None) -> Sequence[Upkeep]:
        """The upkeep of the database, every task once: partitions, expiry, and what `retention` names."""
        self._opened()
        return await self._operations.maintain(retention)

    async def doctor(self, **thresholds: float) -> Report:
        """Examine the database: findings with a severity and a remedy."""
        return await self._operations.doctor(thresholds)
