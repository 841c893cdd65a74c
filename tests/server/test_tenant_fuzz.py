"""Two companies on one server: neither finds out anything about the other, whatever it asks for and with what."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any
from uuid import UUID

import pytest
from tenant_fuzz import LOOKS, Fuzz, bearer, collect_cursors
from tenant_recipes import RECIPES, Call, Wish
from tenant_sql import policies_closed, seen_by_tenant
from tenant_wire import Answer, Wire
from tenant_world import UUIDS, Company, World, absent_like, two_companies

from holdfast import Engine
from holdfast.errors import NotFound
from holdfast.testing.database import copied_database

pytestmark = pytest.mark.anyio

SEED = 20_261
REQUESTS = 1000
CONNECTIONS = 32
WITHOUT_CONTENTS = {
    "consumer_beats",
    "stale_checks",
    "statistics",
    "statistics_deltas",
    "timers",
}  # numbers, and nothing that is waited for here


@pytest.fixture(scope="module")
async def world(holdfast_server: str) -> AsyncIterator[World]:
    with copied_database(holdfast_server) as database:
        async with two_companies(database.dsn) as world:
            await collect_cursors(world)
            yield world


async def test_there_is_a_recipe_for_every_operation(world: World) -> None:
    known = {operation["operationId"] for path in world.app.openapi()["paths"].values() for operation in path.values()}
    assert known == set(RECIPES)


async def test_nothing_of_one_company_shows_in_answers_to_the_other(world: World) -> None:
    found = await Fuzz(world, SEED).run(REQUESTS, CONNECTIONS)
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


async def test_what_the_api_shows_is_read_in_the_role_of_tenants(world: World) -> None:
    """With policies that let nothing through, whoever may see everything of a company sees nothing."""
    company, wire = world.companies[0], Wire(world.url)
    calls = {name: RECIPES[name](own_wish(company, name)) for name in LOOKS}
    with policies_closed(world.dsn):
        for name, call in calls.items():
            answer = await wire.ask(call, bearer(company, "operator"))
            assert company.canary not in answer.text, name
            assert answer.status < 500, answer.text
    seen = [(await wire.ask(call, bearer(company, "operator"))).text for call in calls.values()]
    wire.tear()
    assert sum(company.canary in text for text in seen) > 8


def own_wish(company: Company, name: str) -> Wish:
    """Ask for what is one's own."""
    return Wish(random.Random(name), random.Random(1), company, company, absent=False)


KINDS = {"instance_id": "instance", "task_id": "task", "letter_id": "letter", "effect_id": "effect"}
GIVEN: dict[str, Any] = {
    "event": "confirmed",
    "by": "eve",
    "to": "eve",
    "decision": "confirmed",
    "from_step": "ask",
    "node": "ask",
    "timeout": 5.0,
    "delay": 5.0,
    "name": "Check",
    "status": "Done",
    "activity_id": str(UUID(int=1)),
}
LISTS = ("tasks", "dead_letters")  # of an instance that is not there: empty


def verbs_about_one() -> list[tuple[str, str]]:
    """Every verb of the engine that takes an id first, and the name of that parameter."""
    found = inspect.getmembers(Engine, inspect.iscoroutinefunction)
    firsts = [(name, next(islice(inspect.signature(verb).parameters, 1, None), "")) for name, verb in found]
    return [(name, first) for name, first in firsts if first in KINDS and not name.startswith("_")]


@pytest.mark.parametrize(("name", "first"), verbs_about_one())
async def test_a_view_of_the_engine_for_one_company_finds_nothing_of_the_other(
    world: World, name: str, first: str
) -> None:
    mine, theirs = world.companies
    verb = getattr(world.engine.for_org(mine.name), name)
    needed = inspect.signature(verb).parameters
    more = {key: GIVEN[key] for key in needed if key in GIVEN} | ({"by": "eve"} if "wishes" in needed else {})
    foreign = theirs.ids[KINDS[first]][0]
    if name in LISTS:
        assert await verb(foreign) == []
        return
    refusals = []
    for id in (foreign, absent_like(foreign, 1)):
        with pytest.raises(NotFound) as caught:
            await verb(id, **more)
        refusals.append((caught.value.code, caught.value.message.replace(id, "").replace(UUID(id).hex, "")))
    assert refusals[0] == refusals[1]


def test_there_are_verbs_to_try() -> None:
    assert len(verbs_about_one()) > 20


async def test_a_leak_would_be_found(world: World) -> None:
    mine, theirs = world.companies
    call, id = Call("GET", "/somewhere"), theirs.ids["task"][0]
    for text, sent, leaks in (
        (f'{{"data": "{theirs.canary}"}}', [], 1),
        (f'{{"assignee": "{theirs.mark}-clerk"}}', [], 1),
        (f'{{"task_id": "{id}"}}', [], 1),
        (f'{{"detail": "There is no task {id}."}}', [id], 0),
        (f'{{"data": "{mine.canary}", "id": "{mine.ids["task"][0]}"}}', [], 0),
    ):
        fuzz = Fuzz(world, SEED)
        fuzz.check(call, Answer(200, {}, text), mine, sent)
        fuzz.check(call, Answer(200, {"location": text}, ""), mine, sent)
        assert len(fuzz.found.leaks) == 2 * leaks, text
