"""The HTTP server dies of kill -9 again and again while people advance workflows with idempotency keys.

Two people decide about every second claim at the same time, and only one of them may win. Whoever gets no answer asks
again with the same key. At the end every call is sent once more: nothing may change, and everybody hears again what
they heard before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from faults import check
from faults.check import Verdict
from faults.desk import Desk
from faults.profile import Profile
from faults.report import NONE, Bar, Figure
from faults.scene import Stage, prepared
from holdfast import Engine
from holdfast.doors.steps.load import load_steps

TENANT = "acme"
LEASE = 1.5
CLIENTS = 16
PATIENCE = 600.0  # seconds for the whole run
CLAIMS = """
workflows:
  - id: claims
    steps:
      - {id: submit, type: action, form: {type: object, required: [token], properties: {token: {type: string}}}}
      - {id: review, type: approval, assignee: {role: judge}}
      - {id: book, type: system, operation: "python:work", retry: {calls: 50}}
      - {id: paid, type: terminal}
      - {id: refused, type: terminal}
    transitions:
      - {from: submit, to: review, event: completed}
      - {from: review, to: book, event: approved}
      - {from: review, to: refused, event: rejected}
      - {from: book, to: paid, event: completed}
"""
ENDS = {"approved": "paid", "rejected": "refused"}


@dataclass
class Call:
    """One intended change: a key, sent until it is answered."""

    person: str
    event: str
    token: str  # its key, and the comment by which the audit trail knows it
    status: int = 0
    repeats: int = 0

    @property
    def is_accepted(self) -> bool:
        return self.status in (200, 202)


@dataclass
class Claim:
    """One workflow and the calls that were made about it."""

    number: int
    id: str = ""
    calls: list[Call] = field(default_factory=list)

    @property
    def decisions(self) -> list[Call]:
        return self.calls[1:]


class Office:
    """The people: each claim is started, submitted and decided."""

    def __init__(self, desk: Desk, http: httpx2.AsyncClient) -> None:
        self._desk = desk
        self._http = http
        self.claims: list[Claim] = []
        self.under_way = 0  # advance calls without an answer yet
        self.answered = 0
        self.unanswered = 0
        self.strange: list[str] = []

    async def handle(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            claim = Claim(number)
            self.claims.append(claim)
            begun = await self._insist("alice", "claims/start", {"claim": number}, f"start-{number}")
            claim.id = begun.json()["id"]
            submitted = Call("alice", "completed", f"submit-{number}")
            judged = [Call("bob", "approved", f"approve-{number}"), Call("carol", "rejected", f"reject-{number}")]
            claim.calls = [submitted, *(judged if number % 2 else judged[:1])]
            await self._advance(claim, submitted)
            await asyncio.gather(*(self._advance(claim, call) for call in claim.decisions))

    async def _advance(self, claim: Claim, call: Call) -> None:
        self.under_way += 1
        try:
            call.status = await self.send(claim, call)
        finally:
            self.under_way -= 1
        self.answered += 1

    async def send(self, claim: Claim, call: Call) -> int:
        body = {"event": call.event, "input": {"token": call.token}, "comment": call.token}
        answer = await self._insist(call.person, f"{claim.id}/advance", body, call.token, call)
        return answer.status_code

    async def _insist(self, who: str, path: str, body: Any, key: str, call: Call | None = None) -> httpx2.Response:
        headers = {
            "X-Holdfast-Tenant": TENANT,
            "X-Holdfast-Subject": who,
            "X-Holdfast-Roles": "judge",
            "Idempotency-Key": key,
        }
        while True:
            url = await self._desk.url()
            try:
                answer = await self._http.post(f"{url}/ui/workflows/{path}", json=body, headers=headers)
            except httpx2.TransportError:
                if call is not None:
                    call.repeats += 1
                    self.unanswered += 1
                await asyncio.sleep(0.01)
                continue
            if answer.status_code not in (200, 201, 202, 409, 422):
                self.strange.append(f"{path} for {who}: {answer.status_code} {answer.text[:300]}")
            return answer

    async def look(self, claim: Claim) -> dict[str, Any]:
        headers = {"X-Holdfast-Tenant": TENANT, "X-Holdfast-Subject": "alice"}
        answer = await self._http.get(f"{await self._desk.url()}/ui/workflows/{claim.id}", headers=headers)
        return answer.json()


def run(profile: Profile, seed: int) -> list[Figure]:
    calls, kills = profile.size(1000, 60), profile.size(20, 2)
    with prepared() as stage:
        outcome = asyncio.run(_ordeal(stage, random.Random(seed), calls, kills))
        started = {f"start-{claim.number}": claim.id for claim in outcome.office.claims}
        verdict = check.judge(stage.dsn, stage.witness.entries(), started=started)
    for sentence in outcome.told():
        print(sentence)
    if verdict.broken():
        print(verdict.report())
    return outcome.figures(seed, calls, kills, verdict)


@dataclass
class Outcome:
    """What is wrong after everything is over, each a sentence."""

    office: Office
    hits: int  # kills that met calls under way
    gone: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def told(self, most: int = 10) -> list[str]:
        return [*self.office.strange, *self.gone, *self.doubtful, *self.forgotten][:most]

    def figures(self, seed: int, calls: int, kills: int, verdict: Verdict) -> list[Figure]:
        office = self.office
        sent = sum(len(claim.calls) for claim in office.claims)
        unsure = sum(call.repeats > 0 for claim in office.claims for call in claim.calls)
        valid = sent >= calls and self.hits >= kills and verdict.share_finished >= 0.95
        faults = f"{self.hits} kills that hit, {CLIENTS} clients"
        return [
            Figure("server kill -9 with calls under way", self.hits, Bar("≥", kills), seed, f"{sent:,} advance calls"),
            Figure(
                "server killed: answered calls gone", len(self.gone), NONE, seed, f"{sent:,} calls, {faults}", valid
            ),
            Figure(
                "server killed: unanswered calls without exactly one outcome",
                len(self.doubtful) + len(office.strange),
                NONE,
                seed,
                f"{unsure:,} calls asked again, {office.unanswered:,} times; {faults}",
                valid and unsure > 0,
            ),
            Figure(
                "server killed: repeated keys that changed anything",
                len(self.forgotten),
                NONE,
                seed,
                f"{sent:,} calls repeated when all was over",
                valid,
            ),
            Figure(
                "server killed: invariants broken",
                verdict.broken(),
                NONE,
                seed,
                f"{verdict.counts['steps']:,} steps, {verdict.counts['effects']:,} calls of the system step",
                valid,
            ),
        ]


async def _ordeal(stage: Stage, luck: random.Random, calls: int, kills: int) -> Outcome:
    async with Engine(stage.dsn, org=TENANT) as engine:
        for workflow in load_steps(CLAIMS).require_sound():
            await engine.publish(workflow)
    desk = Desk(stage.task(worker={"lease": LEASE}, nap=0.05), stage.place)
    limits = httpx2.Limits(max_connections=2 * CLIENTS)
    async with httpx2.AsyncClient(timeout=60, trust_env=False, limits=limits) as http:
        try:
            async with asyncio.timeout(PATIENCE):
                await desk.open()
                outcome = await _advance_all(desk, Office(desk, http), luck, calls, kills)
                await _look_at_all(outcome)
                return outcome
        except BaseException:
            print(f"the server's last words:\n{desk.last_words()}")
            raise
        finally:
            desk.kill()


async def _advance_all(desk: Desk, office: Office, luck: random.Random, calls: int, kills: int) -> Outcome:
    """The kills are spread over the calls, each at some moment when some of them have no answer yet."""
    numbers = iter(range(calls * 2 // 5))  # two calls, three calls, …
    people = asyncio.gather(*(office.handle(numbers) for _ in range(CLIENTS)))
    hits = 0
    try:
        for kill in range(kills):
            while office.answered < calls * (kill + 1) // (kills + 2) and not people.done():
                await asyncio.sleep(0.001)
            hits += await _kill(desk, office, luck, people)
        await people
    finally:
        people.cancel()
    return Outcome(office, hits)


async def _kill(desk: Desk, office: Office, luck: random.Random, people: asyncio.Future[Any]) -> bool:
    """Until a kill left somebody without an answer, or there is nobody left to ask."""
    before = office.unanswered
    while office.unanswered == before and not people.done():
        await asyncio.sleep(luck.random() * 0.05)
        if office.under_way:
            desk.kill()
            await desk.open()
    return office.unanswered > before


async def _look_at_all(outcome: Outcome) -> None:
    await asyncio.gather(*(_look_at(outcome, claim) for claim in outcome.office.claims))


async def _look_at(outcome: Outcome, claim: Claim) -> None:
    office = outcome.office
    before = await _when_over(office, claim)
    _judge(claim, before, outcome)
    for call in claim.calls:
        again = await office.send(claim, call)
        if (again in (200, 202)) != call.is_accepted:
            outcome.forgotten.append(f"{call.token} was answered {call.status} and then {again}")
    if await office.look(claim) != before:
        outcome.forgotten.append(f"claim {claim.number} changed when its calls were repeated")


async def _when_over(office: Office, claim: Claim) -> dict[str, Any]:
    while (found := await office.look(claim))["status"] == "active":
        await asyncio.sleep(0.02)
    return found


def _judge(claim: Claim, found: dict[str, Any], outcome: Outcome) -> None:
    """Accepted calls are in the audit trail once, refused ones never, and the winner's decision is the end."""
    comments = [(entry["event"], entry.get("comment")) for entry in found["history"]]
    for call in claim.calls:
        told = [event for event, comment in comments if comment == call.token]
        if call.is_accepted and not told:
            outcome.gone.append(f"{call.token} was answered {call.status} and is not in the audit trail")
        elif len(told) != len(set(told)) or (told and not call.is_accepted):
            outcome.doubtful.append(f"{call.token} was answered {call.status} and is in the audit trail as {told}")
    winners = [call for call in claim.decisions if call.is_accepted]
    if len(winners) != 1:
        outcome.doubtful.append(f"claim {claim.number} was decided by {[call.token for call in winners]}")
    elif (found["current_step"] or {}).get("id") != ENDS[winners[0].event]:
        outcome.doubtful.append(f"claim {claim.number} was {winners[0].event} and ended as {found['current_step']}")
    elif found["state"]["token"] != winners[0].token:
        outcome.gone.append(f"the input of {winners[0].token} is not in the state")
