"""Pages of instances: every one once, newest first, of one's own organisation only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from store_batches import opened
from store_fill import HISTORY, LIVE, define, fill

from holdfast.store.pg.session import Session
from holdfast.store.reads.instances import Instance, list_instances
from holdfast.testing import copied_database

pytestmark = pytest.mark.anyio

SIZE = LIVE + 2_000  # numbers above LIVE are over, most of them well


@pytest.fixture(scope="module")
def dsn(holdfast_server: str) -> Iterator[str]:
    with copied_database(holdfast_server) as database, psycopg.connect(database.dsn, autocommit=True) as db:
        define(db)
        fill(db, {"instances": HISTORY["instances"]}, SIZE)
        yield database.dsn


@pytest.fixture
async def session(dsn: str) -> AsyncIterator[Session]:
    async with opened(dsn) as session:
        yield session


async def page(session: Session, org: str, after: str | None = None, limit: int = 50, **filters: Any) -> list[Instance]:
    wanted: dict[str, Any] = {"flow": None, "status": None, "business_key": None, **filters}
    edge = None if after is None else UUID(after).bytes
    return await list_instances(session, org, after=edge, limit=limit, **wanted)


async def pages(session: Session, org: str, limit: int, **filters: Any) -> list[Instance]:
    """All pages, one after the other."""
    found: list[Instance] = []
    while more := await page(session, org, found[-1].id if found else None, limit, **filters):
        assert len(more) <= limit
        found += more
    return found


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({}, 4),
        ({"flow": "rare"}, 4),
        ({"flow": "order"}, 0),
        ({"flow": "unknown"}, 0),
        ({"status": "running"}, 2),
        ({"status": "completed"}, 2),
        ({"status": "failed"}, 0),
    ],
)
async def test_the_pages_of_a_small_organisation(session: Session, filters: dict[str, Any], count: int) -> None:
    found = await pages(session, "small", 3, **filters)
    assert len(found) == count
    assert {i.org for i in found} <= {"small"}


@pytest.mark.parametrize(
    "filters", [{}, {"flow": "rare"}, {"status": "failed"}, {"status": "completed"}, {"business_key": "customer-31"}]
)
@pytest.mark.parametrize("limit", [7, 1000])
async def test_the_pages_hold_every_instance_once_newest_first(
    session: Session, dsn: str, filters: dict[str, Any], limit: int
) -> None:
    found = await pages(session, "huge", limit, **filters)
    conditions = " and ".join(["org_id = 'huge'", *(f"{name} = '{value}'" for name, value in filters.items())])
    with psycopg.connect(dsn) as db:
        wanted = db.execute(f"select id::text from holdfast.instances where {conditions} order by id desc").fetchall()
    assert [i.id for i in found] == [row[0] for row in wanted]


async def test_the_next_page_is_found_when_the_last_instance_is_gone(session: Session) -> None:
    newest = await page(session, "huge", limit=40)
    last = UUID(newest[19].id).bytes
    gone = UUID(bytes=last[:10] + b"nobody")  # made in the same moment, and not there
    following = await page(session, "huge", str(gone), limit=40)
    assert len(following) == 40
    seen = {i.id for i in following}
    assert not seen & {i.id for i in newest[:10]}
    assert seen >= {i.id for i in newest[30:]}
