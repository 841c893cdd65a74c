"""S18: people of two companies ask one server for everything the other one has, over many connections at once.

Each attack is sent twice: once about what the other company has, once about what nobody has. Both answers must be the
same but for what was sent, and nothing of the other company may appear in any answer. In between people read and change
what is their own, requests are cancelled inside the server or torn off by the client, and connections of the database
may be ended. At the end every row of both companies has to be as it was.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from tenant_recipes import ALL, API, NOTHING, ORDER, RECIPES, Call, Wish
from tenant_wire import Answer, Torn, Wire
from tenant_world import CANCEL, UUIDS, Company, World, portrait

TAKING: Final = "stream_facts"  # what it shows is taken
LOOKS: Final = sorted(
    name
    for name in RECIPES
    if (name.startswith(("get_", "list_", "stream_")) and name != TAKING) or name in ("metrics", "health_live")
)
LISTS: Final = {
    "list_definitions": f"{API}/definitions",
    "list_instances": f"{API}/instances",
    "list_tasks": f"{API}/tasks",
    "list_dead_letters": f"{API}/dead-letters",
    "list_effects": f"{API}/effects",
    "list_notices": f"{API}/notices",
    "list_contracts": f"{API}/contracts",
    "list_rule_tables": f"{API}/rule-tables",
    "list_machines": f"{API}/machines",
    "list_consumers": f"{API}/consumers",
    "list_workflows": "/ui/workflows",
}
# Differ between two answers to the same question.
_MOVING: Final = re.compile(r'"request_id":"[^"]*"|^id: [0-9a-f-]{13}-0000-0000-0{12}$', re.MULTILINE)
_KEPT_HEADERS: Final = ("content-type", "etag", "location", "www-authenticate", "allow", "cache-control")


@dataclass
class Findings:
    """What came of it. `leaks` and `differences` say enough to find the request again."""

    requests: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    compared: int = 0
    own_canaries: int = 0  # proof that a canary would have been seen
    cancelled: int = 0
    torn: int = 0
    away: int = 0  # answers of a server whose database was being taken away
    leaks: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        return [*self.leaks, *self.differences, *self.failures, *self.changed]


async def collect_cursors(world: World) -> None:
    """As each company would be given them: by asking for short pages."""
    wire = Wire(world.url)
    for company in world.companies:
        trails = [f"{API}/instances/{id}" for id in company.ids["instance"]]
        paths = {
            **{operation: [path] for operation, path in LISTS.items()},
            "list_steps": [f"{trail}/steps" for trail in trails],
            "list_events": [f"{trail}/events" for trail in trails],
            "list_activities": [f"{trail}/activities" for trail in trails],
            "list_deliveries": [f"{trail}/deliveries" for trail in trails],
            "list_consumer_deliveries": [f"{API}/consumers/{name}/deliveries" for name in company.names["consumer"]],
        }
        for operation, asked in paths.items():
            query = {"limit": "1", **({"environment": "prod"} if operation == "list_consumer_deliveries" else {})}
            answers = [await wire.ask(Call("GET", path, query), bearer(company, "operator")) for path in asked]
            assert all(answer.status == 200 for answer in answers), [(operation, answer.text) for answer in answers]
            company.cursors[operation] = [next for answer in answers if (next := json.loads(answer.text)["next"])]
    wire.tear()


class Fuzz:
    def __init__(self, world: World, seed: int, *, is_rough: bool = False) -> None:
        self.world = world
        self.found = Findings()
        self._seed = seed
        self._is_rough = is_rough  # connections of the database end under way: 503 is an answer then

    async def run(self, requests: int, connections: int) -> Findings:
        before = {company.name: portrait(self.world.dsn, company) for company in self.world.companies}
        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                visitor = _Visitor(self, random.Random(f"{self._seed}/{number}"))
                group.create_task(visitor.visit(requests, first=list(RECIPES)[number::connections]))
        self._compare_rows(before)
        return self.found

    def _compare_rows(self, before: dict[str, dict[str, set[str]]]) -> None:
        """New rows there may be: both companies went on working. What was there is there, unchanged."""
        for company in self.world.companies:
            after = portrait(self.world.dsn, company)
            for table, rows in before[company.name].items():
                for row in rows - after[table]:
                    self.found.changed.append(f"a row of {company.name} in {table} changed: {row[:300]}")

    def check(self, call: Call, answer: Answer, caller: Company, sent: list[str]) -> None:
        """Nothing of the other company, beyond what the caller has sent."""
        found, other = self.found, self.world.other(caller)
        found.statuses[answer.status] += 1
        told = answer.everything
        for value in sorted({*sent, *map(quote, sent)}, key=len, reverse=True):
            told = told.replace(value, "")
        ids = set(UUIDS.findall(told)) & other.every_id
        if other.canary in told or other.mark in told or ids:
            found.leaks.append(f"{caller.name} {call.method} {call.target} {call.headers}: {answer.text[:500]}")
        if caller.canary in told:
            found.own_canaries += 1
        if answer.status >= 500:
            if answer.status == 503 and self._is_rough:
                found.away += 1
            else:
                found.failures.append(f"{call.method} {call.target}: {answer.status} {answer.text[:300]}")


class _Visitor:
    """One connection, and whoever uses it at the moment."""

    def __init__(self, fuzz: Fuzz, luck: random.Random) -> None:
        self._fuzz = fuzz
        self._luck = luck
        self._wire = Wire(fuzz.world.url)

    async def visit(self, requests: int, first: list[str]) -> None:
        """Some operations for certain, then whatever luck brings, until all visitors together have sent enough."""
        for operation in first:
            for company in self._fuzz.world.companies:
                await self._attack(company, operation)
        deeds = {self._attack_anything: 50, self._look: 25, self._work: 5, self._cancel: 10, self._pretend: 10}
        while self._fuzz.found.requests < requests:
            deed = self._luck.choices([*deeds], [*deeds.values()])[0]
            await deed(self._luck.choice(self._fuzz.world.companies))
        self._wire.tear()

    async def _attack_anything(self, company: Company) -> None:
        await self._attack(company, self._luck.choice([*RECIPES]))

    async def _attack(self, company: Company, operation: str) -> None:
        """The same request about what the other has and about what nobody has, in any order."""
        seed = self._luck.random()
        headers = {**bearer(company, self._who()), **self._disguise(company)}
        answers: list[tuple[Call, Answer, list[str]]] = []
        for absent in self._luck.sample([False, True], 2):
            call, sent = self._written(operation, company, self._fuzz.world.other(company), seed, absent=absent)
            if call.who is not None:
                headers.update(bearer(company, call.who))
            answer = await self._ask(operation, call, headers)
            if answer is None:
                return
            self._fuzz.check(call, answer, company, [*sent, *headers.values()])
            answers.append((call, answer, sent))
        self._compare(*answers)

    def _compare(self, one: tuple[Call, Answer, list[str]], two: tuple[Call, Answer, list[str]]) -> None:
        found = self._fuzz.found
        if one[0].same == NOTHING or 503 in (one[1].status, two[1].status):
            return
        found.compared += 1
        first, second = (_blurred(*side) for side in (one, two))
        if first != second:
            found.differences.append(f"{one[0].method} {one[0].target} | {two[0].target}: {first} | {second}")

    async def _look(self, company: Company) -> None:
        """At one's own: real cursors, real ids; whoever is no operator may not see everything."""
        operation = self._luck.choice(LOOKS)
        call, _ = self._written(operation, company, company, self._luck.random(), absent=False)
        answer = await self._ask(operation, call, bearer(company, self._who()))
        if answer is not None:
            self._fuzz.check(call, answer, company, [])

    async def _work(self, company: Company) -> None:
        """Start something, change it, and contradict oneself: what the database refuses is rolled back."""
        key = f"work-{self._luck.getrandbits(64):x}"
        input = {"secret": company.canary}
        started = await self._mine(
            company, "start_instance", f"{API}/instances", {"flow": "orders", "input": input}, key
        )
        await self._mine(company, "start_instance", f"{API}/instances", {"flow": "orders", "input": ORDER}, key)
        if started is None or started.status != 201:
            return
        id = json.loads(started.text)["id"]
        event = self._luck.choice(["rejected", "confirmed", f"{company.mark}-unheard"])
        await self._mine(company, "signal_instance", f"{API}/instances/{id}/signals", {"event": event}, key)
        await self._mine(company, "signal_instance", f"{API}/instances/{id}/signals", {"event": "other"}, key)
        await self._mine(company, "cancel_instance", f"{API}/instances/{id}/cancel", {"reason": company.canary}, key)

    async def _mine(self, company: Company, operation: str, path: str, body: Any, key: str) -> Answer | None:
        call = Call("POST", path, body=body, headers={"Idempotency-Key": key})
        answer = await self._ask(operation, call, bearer(company, "operator"))
        if answer is not None:
            self._fuzz.check(call, answer, company, [key])
        return answer

    async def _cancel(self, company: Company) -> None:
        """A request that ends in the middle: inside the server, or because nobody waits for its answer any more."""
        operation = self._luck.choice(LOOKS)
        target = self._luck.choice(self._fuzz.world.companies)
        call, sent = self._written(operation, company, target, self._luck.random(), absent=False)
        headers = bearer(company, self._who())
        self._fuzz.found.cancelled += 1
        if self._luck.random() < 0.5:
            headers[CANCEL.decode()] = str(self._luck.choice([0, 0, 1, 2, 5]))
            answer = await self._ask(operation, call, headers, may_tear=True)
        else:
            asking = asyncio.create_task(self._ask(operation, call, headers, may_tear=True))
            await asyncio.wait([asking], timeout=self._luck.choice([0, 0.001, 0.003]))
            asking.cancel()
            answer = (await asyncio.gather(asking, return_exceptions=True))[0]
        if isinstance(answer, Answer) and answer.status < 500:
            self._fuzz.check(call, answer, company, sent)

    async def _pretend(self, company: Company) -> None:
        """With credentials put together from both companies' keys: nobody at all."""
        other = self._fuzz.world.other(company)
        mine, theirs = company.keys[self._who()], other.keys[self._who()]
        mixed = f"{theirs.rpartition('_')[0]}_{mine.rpartition('_')[2]}"
        headers = self._luck.choice(
            [
                {"Authorization": f"Bearer {mixed}"},
                {"Authorization": f"Bearer {mine}", "X-Api-Key": theirs},
                {"X-Holdfast-Tenant": other.name, "X-Holdfast-Roles": "operator"},
            ]
        )
        operation = self._luck.choice(LOOKS)
        call, sent = self._written(operation, company, other, self._luck.random(), absent=False)
        answer = await self._ask(operation, call, headers)
        if answer is None:
            return
        self._fuzz.check(call, answer, company, sent)
        if answer.status not in (401, 503) and not call.path.startswith("/health"):
            self._fuzz.found.failures.append(f"{call.method} {call.target} with {headers}: {answer.status}")

    async def _ask(
        self, operation: str, call: Call, headers: dict[str, str], *, may_tear: bool = False
    ) -> Answer | None:
        found = self._fuzz.found
        found.requests += 1
        found.operations[operation] += 1
        try:
            return await self._wire.ask(call, headers)
        except Torn:
            found.torn += 1
            if not may_tear:
                found.failures.append(f"{call.method} {call.target}: no answer")
            return None

    def _written(
        self, operation: str, own: Company, other: Company, seed: float, *, absent: bool
    ) -> tuple[Call, list[str]]:
        wish = Wish(random.Random(seed), random.Random(f"{seed}/{absent}"), own, other, absent=absent)
        return RECIPES[operation](wish), wish.sent

    def _who(self) -> str:
        return self._luck.choice(["operator", "operator", "clerk", "guest"])

    def _disguise(self, company: Company) -> dict[str, str]:
        """Words about oneself that nobody should believe."""
        if self._luck.random() < 0.8:
            return {}
        other = self._fuzz.world.other(company)
        return {
            "X-Holdfast-Tenant": other.name,
            "X-Holdfast-Subject": other.names["subject"][0],
            "X-Forwarded-User": other.names["subject"][0],
            "X-Correlation-Id": f"{company.name}-{self._luck.getrandbits(32)}",
        }


def bearer(company: Company, who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {company.keys[who]}"}


def _blurred(call: Call, answer: Answer, sent: list[str]) -> tuple[Any, ...]:
    """An answer without what was sent and without the name of the request."""
    if call.same != ALL:
        return (answer.status,)
    kept = "\n".join(f"{name}: {answer.headers.get(name)}" for name in _KEPT_HEADERS)
    text = _MOVING.sub("", f"{kept}\n{answer.text}")
    for number, value in enumerate(sent):
        text = text.replace(value, f"<{number}>").replace(quote(value), f"<{number}>")
    return answer.status, text
