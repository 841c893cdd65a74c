"""Migration of running instances to another version of their flow, page by page, with a reason for each that cannot
move.

Every instance is tried on its stored snapshot first; only one that could be moved is moved, in a commit of its own
signal, decided anew under its lock. So a migration may be broken off and repeated at any time: a moved instance is on
the new version and is not examined again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import msgspec

from holdfast.core.decide import decide
from holdfast.core.model.control_rows import Migrated, read_control
from holdfast.core.model.decision import Facts
from holdfast.core.model.program import Program
from holdfast.core.model.signals import Actor, Migrate
from holdfast.core.model.state import Instance
from holdfast.core.signals.migrate import lost_undos, way_back
from holdfast.errors import HoldfastError, NotFound, Refused
from holdfast.runtime.commit.items import Item
from holdfast.runtime.ops.rebuild import str_id, unknown
from holdfast.runtime.validation import Id, check_text, check_version, take_id
from holdfast.store.commit.history import read_visited
from holdfast.store.definitions import find_definition
from holdfast.store.pg.session import Session
from holdfast.store.reads.flows import NEWEST, page_versions, place_of_version
from holdfast.store.reads.snapshots import Snapshots, list_unfinished, read_migrations, read_snapshots

if TYPE_CHECKING:
    from holdfast.runtime.engine.core import Base

PAGE: Final = 200
MOST: Final = 10_000
Way = tuple[Migrate, Program]
_UNCHANGED: Final = "MIGRATION_ALREADY_THERE"


class Blocked(msgspec.Struct, frozen=True):
    """An instance that stays on its version, and why."""

    id: str
    code: str
    reason: str
    version: int | None = None  # of the flow


class Migration(msgspec.Struct):
    """Result by instance; in a dry run, the result there would be."""

    flow: str
    dry_run: bool
    moved: list[str] = []
    blocked: list[Blocked] = []
    unchanged: list[str] = []  # named by the caller, and already there
    next: str | None = None  # where to go on: there may be more

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of moved, blocked and unchanged instances, and of the blocked ones by reason."""
        counts = {"moved": len(self.moved), "blocked": len(self.blocked), "unchanged": len(self.unchanged)}
        for blocked in self.blocked:
            counts[blocked.code] = counts.get(blocked.code, 0) + 1
        return counts


class Which(msgspec.Struct, frozen=True):
    """The instances that are meant."""

    flow: str
    version: int | None = None  # only those on it
    other: int | None = None  # not those on it
    ids: Sequence[Id] | None = None
    after: Id | None = None
    limit: int = MOST

    def check(self) -> None:
        check_text(self.flow, "name of the flow")
        check_version(self.version)
        if type(self.limit) is not int or self.limit < 1:
            raise Refused("At least one instance must be looked at.", code="LIMIT_INVALID")


class Migrator:
    def __init__(self, engine: Base, session: Session, by: str | None, reason: str | None, *, dry_run: bool) -> None:
        check_text(by, "actor")
        check_text(reason, "reason")
        self._engine = engine
        self._session = session
        self._actor = Actor(by or "system")
        self._reason = reason
        self._dry_run = dry_run

    async def migrate(self, which: Which, to: int, nodes: Mapping[str, str] | None) -> Migration:
        """Move the instances to one version, with the same mapping for all."""
        check_version(to)
        which.check()
        engine = self._engine
        names = {} if nodes is None else _take_names(nodes)
        target = (await engine.catalog.find(self._session, engine.org, which.flow, to)).program
        strange = sorted(set(names.values()) - target.places.keys())
        if strange:
            raise _strange(strange[0], f"version {to} of {which.flow!r}")
        await self._check_origin(which, to, set(names))
        signal = Migrate(target.definition, names, reason=self._reason)
        return await self._walk(which, (signal, target))

    async def revert(self, which: Which) -> Migration:
        """Each to the version it came from, by what its own migration recorded."""
        which.check()
        await self._definition(which.flow, which.version)
        return await self._walk(which, None)

    async def _definition(self, flow: str, version: int | None) -> bytes:
        """Find the definition of a version, which need not be one that could be started today."""
        catalog, org = self._engine.catalog, self._engine.org
        found = await find_definition(self._session, org, flow, version)
        if found is None:
            raise await catalog.unknown(self._session, org, flow, version)
        return found.id

    async def _check_origin(self, which: Which, to: int, names: set[str]) -> None:
        """Check that mapped nodes exist in a version to migrate from; most likely the newest has them all."""
        for version in await self._origins(which, to):
            definition = await self._definition(which.flow, version)
            if not names:
                return
            with contextlib.suppress(HoldfastError):  # of a version that cannot be read no instance can be moved
                names = names - (await self._engine.catalog.program(self._session, definition)).places.keys()
        if names:
            where = "the versions to migrate from" if which.version is None else f"version {which.version}"
            raise _strange(min(names), f"{where} of {which.flow!r}")

    async def _origins(self, which: Which, to: int) -> list[int]:
        """The versions that are migrated from, the newest first."""
        if which.version is not None:
            return [which.version]
        found: list[int] = []
        after = NEWEST
        while True:
            page = await page_versions(self._session, self._engine.org, which.flow, after, PAGE)
            found += [one.version for one in page if one.version != to]
            if len(page) < PAGE:
                return found
            after = place_of_version(page[-1])

    async def _walk(self, which: Which, way: Way | None) -> Migration:
        report = Migration(which.flow, self._dry_run)
        left, after = which.limit, None if which.after is None else take_id(which.after)
        if which.ids is not None:
            ids = _take_ids(which.ids)
            for start in range(0, len(ids), PAGE):
                part = ids[start : start + PAGE]
                found = await read_snapshots(self._session, self._engine.org, part)
                report.blocked += [_blocked(id, unknown(id), None) for id in part if id not in found]
                await self._page(report, found, way)
            return report
        while left > 0:
            size = min(PAGE, left)
            found = await list_unfinished(
                self._session, self._engine.org, which.flow, which.version, which.other, after, size
            )
            await self._page(report, found, way)
            if len(found) < size:
                return report
            left, after = left - size, next(reversed(found))
        report.next = None if after is None else str_id(after)
        return report

    async def _page(self, report: Migration, found: Snapshots, way: Way | None) -> None:
        ways = await self._ways_back(found) if way is None else dict.fromkeys(found, way)
        for definition in {i.definition for i in found.values() if isinstance(i, Instance)}:
            with contextlib.suppress(HoldfastError):  # told by each instance that is on it
                await self._engine.catalog.program(self._session, definition)
        results = await asyncio.gather(*(self._one(id, instance, ways.get(id)) for id, instance in found.items()))
        for (id, instance), refusal in zip(found.items(), results, strict=True):
            if refusal is None:
                report.moved.append(str_id(id))
            elif refusal.code == _UNCHANGED:
                report.unchanged.append(str_id(id))
            else:
                version = instance.flow_version if isinstance(instance, Instance) else None
                report.blocked.append(_blocked(id, refusal, version))

    async def _ways_back(self, found: Snapshots) -> dict[bytes, Way]:
        ways: dict[bytes, Way] = {}
        for id, detail in (await read_migrations(self._session, list(found))).items():
            record = read_control(Migrated, detail)
            origin = bytes.fromhex(record.came_from.definition)
            nodes, tokens = way_back(record)
            target = await self._engine.catalog.program(self._session, origin)
            ways[id] = Migrate(origin, nodes, tokens, self._reason), target
        return ways

    async def _one(self, id: bytes, instance: Instance | HoldfastError, way: Way | None) -> HoldfastError | None:
        if isinstance(instance, HoldfastError):
            return instance
        if way is None:
            return Refused(
                "The instance began on this version: there is no migration to revert.",
                code="MIGRATION_NONE",
                hint="Use migrate to move it to another version.",
            )
        signal, target = way
        try:
            program = await self._engine.catalog.program(self._session, instance.definition)
            visited = await read_visited(self._session, id) if lost_undos(program, target, signal) else None
            decide(program, instance, signal, Facts(0, self._actor, target=target, visited=visited))
            if not self._dry_run:
                await self._engine.committer.apply(Item(id, signal, self._actor))
        except HoldfastError as refusal:
            return refusal
        return None


def _take_names(nodes: Any) -> dict[str, str]:
    told = ascii(nodes)[:80]
    named = dict(cast(Mapping[Any, Any], nodes)) if isinstance(nodes, Mapping) else None
    if named is None or not all(isinstance(name, str) for pair in named.items() for name in pair):
        raise Refused(
            f"`nodes` is a mapping of old names to new ones, not {told}.",
            code="NODE_MAPPING_INVALID",
            hint="Pass for example nodes={'approve': 'sign'}, or leave it out.",
        )
    return named


def _take_ids(ids: Any) -> list[bytes]:
    """Read a list of ids; a single one is accepted as it is."""
    if not isinstance(ids, Iterable | UUID):
        raise Refused(
            f"`instances` is a list of ids, not {ascii(ids)[:80]}.",
            code="ID_INVALID",
            hint="Pass the ids as `start` gave them, or leave it out.",
        )
    return [take_id(id) for id in ([ids] if isinstance(ids, Id) else cast(Iterable[Id], ids))]


def _strange(node: str, where: str) -> NotFound:
    return NotFound(
        f"There is no node {node!r} in {where}.",
        code="NODE_UNKNOWN",
        hint="Map nodes of the old version to nodes of the new one.",
    )


def _blocked(id: bytes, refusal: HoldfastError, version: int | None) -> Blocked:
    return Blocked(str_id(id), refusal.code, refusal.message, version)
