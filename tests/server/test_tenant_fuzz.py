"""Two companies on one server: neither finds out anything about the other, whatever it asks for and with what."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tenant_fuzz import Fuzz
from tenant_recipes import RECIPES
from tenant_sql import seen_by_tenant
from tenant_world import UUIDS, World, two_companies

from holdfast.testing.database import copied_database

pytestmark = pytest.mark.anyio

SEED = 20_261
REQUESTS = 1000
CONNECTIONS = 32
WITHOUT_CONTENTS = {"statistics", "statistics_deltas", "timers"}  # numbers, and nothing that is waited for here


@pytest.fixture(scope="module")
async def world(holdfast_server: str) -> AsyncIterator[World]:
    with copied_database(holdfast_server) as database:
        async with two_companies(database.dsn) as world:
            yield world


async def test_there_is_a_recipe_for_every_operation(world: World) -> None:
    known = {operation["operationId"] for path in world.app.openapi()["paths"].values() for operation in path.values()}
    assert known == set(RECIPES)


async def test_nothing_of_one_company_shows_in_answers_to_the_other(world: World) -> None:
    fuzz = Fuzz(world, SEED)
    await fuzz.collect_cursors()
    found = await fuzz.run(REQUESTS, CONNECTIONS)
    assert not found.wrong, "\n".join(found.wrong[:5])
    assert set(found.operations) == set(RECIPES)
    assert found.requests >= REQUESTS
    assert found.compared > REQUESTS / 4
    assert found.own_canaries > REQUESTS / 20
    assert found.cancelled > REQUESTS / 40


@pytest.mark.parametrize("setting", [None, "", "nobody", "%", "acme,globex"])
async def test_the_role_of_tenants_reads_nothing_without_an_organisation(world: World, setting: str | None) -> None:
    seen = seen_by_tenant(world.dsn, setting)
    assert {table for table, text in seen.items() if text} == set()


async def test_the_role_of_tenants_reads_the_rows_of_one_organisation(world: World) -> None:
    for company in world.companies:
        other = world.other(company)
        for table, text in seen_by_tenant(world.dsn, company.name).items():
            assert other.canary not in text, table
            assert other.mark not in text, table
            assert not other.every_id & set(UUIDS.findall(text)), table
            if table not in WITHOUT_CONTENTS:
                assert company.canary in text or company.mark in text, table
