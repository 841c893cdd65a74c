"""Two companies with data of every kind on one server: same names, other contents, and marks that give a leak away.

Everything a company stores carries its canary, and every name it made up carries its mark; names that both companies
use (`orders`, some keys) carry neither. Who calls is proven by API keys, as in production.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from http_server import listening
from psycopg import sql
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import Caller, Context, Contract, DecisionTable, DoNotRetry, Engine, Fill, Machine, Patch, Postpone
from holdfast.doors.steps.load import load_steps
from holdfast.server.app import create_app
from holdfast.server.auth.api_keys import ApiKeyAuthenticator
from holdfast.server.auth.chain import Chain
from holdfast.server.auth.keyring import SCOPES, Keyring
from holdfast.server.settings import ServerSettings
from holdfast.store.pg.reconnecting import StandingSession

NAMES = ("acme", "globex")
BOTH = tuple(f"both-{n}" for n in range(4))  # keys of starts that both companies have used
UUIDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CANCEL = b"x-test-cancel"
_LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

REVIEW = """\
workflows:
  - id: {mark}.review
    name: Review of {canary}
    version: 1
    capabilities: ["{mark}:review"]
    steps:
      - id: {mark}-review
        name: Look at {canary}
        type: approval
        assignee: {{role: {mark}-clerk}}
        form: {{type: object, title: "{canary}", properties: {{notes: {{type: string}}}}}}
      - {{id: approved, type: terminal}}
      - {{id: refused, type: terminal}}
    transitions:
      - {{from: {mark}-review, to: approved, event: approved}}
      - {{from: {mark}-review, to: refused, event: rejected}}
"""


@dataclass
class Company:
    """One tenant: its marks, the keys of its people, and what somebody who spied on it would know."""

    name: str
    keys: dict[str, str] = field(default_factory=dict)
    ids: dict[str, list[str]] = field(default_factory=dict)
    acks: list[str] = field(default_factory=list)
    cursors: dict[str, list[str]] = field(default_factory=dict)  # by operation
    every_id: frozenset[str] = frozenset()

    @property
    def mark(self) -> str:
        return f"m4rk{self.name}"

    @property
    def canary(self) -> str:
        return f"c4nary{self.name}"

    @property
    def names(self) -> dict[str, list[str]]:
        return {
            "flow": [f"{self.mark}.orders", f"{self.mark}.review"],
            "subject": [f"{self.mark}-{who}" for who in ("operator", "clerk", "guest")],
            "role": [f"{self.mark}-clerk"],
            "key": [f"{self.mark}-key-{n}" for n in range(4)],
            "business_key": [f"{self.mark}-order-{n}" for n in range(4)],
            "attribute": [f"customer={self.mark}-customer"],
            "node": [f"{self.mark}-ask", f"{self.mark}-do", f"{self.mark}-review"],
            "start_key": [f"start-{self.name}-{n}" for n in range(4)],  # the other company will use them as well
            "environment": [f"{self.mark}-env"],
            "machine": [f"{self.mark}-case"],
            "contract": [f"{self.mark}-paper-{n}" for n in range(2)],
            "table": [f"{self.mark}-limits-{n}" for n in range(2)],
            "ref": [f"{self.mark}-ref-{n}" for n in range(4)],
            "request": [f"{self.mark}-request-{n}" for n in range(4)],
            "consumer": [f"{self.mark}-consumer-{n}" for n in range(2)],
            "new_consumer": [f"new-{self.name}-{n}" for n in range(4)],  # as are these
        }


def orders(company: Company, name: str) -> dict[str, Any]:
    """A person decides, a step is done that may fail, and the world is told, which always fails."""
    mark, canary = company.mark, company.canary
    ask = {"kind": "human", "roles": [f"{mark}-clerk"], "form": {"type": "object", "title": canary}}
    return {
        "name": name,
        "entry": f"{mark}-ask",
        "policy": {"data": "context", "on_error": "dlq"},
        "nodes": [
            {"id": f"{mark}-ask", **ask},
            {"id": f"{mark}-do", "kind": "task", "handler": "do"},
            {"id": "tell", "kind": "effect", "handler": "tell", "retry": {"calls": 1}},
            {"id": "end", "kind": "end"},
            {"id": "no", "kind": "end"},
        ],
        "edges": [
            {"id": "yes", "source": f"{mark}-ask", "target": f"{mark}-do", "on": "confirmed"},
            {"id": "not", "source": f"{mark}-ask", "target": "no", "on": "rejected"},
            {"id": "done", "source": f"{mark}-do", "target": "tell"},
            {"id": "told", "source": "tell", "target": "end"},
        ],
    }


def case(company: Company, environment: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A case is opened and reminded of; its consumers are asked for something that only this company knows."""
    mark, canary = company.mark, company.canary
    blueprint = {
        "name": f"{mark}-case",
        "environment": environment,
        "version": 1,
        "states": [{"name": "new", "is_initial": True}, {"name": f"{mark}-open", "category": canary}],
        "events": [{"code": 1, "name": "open"}, {"code": 2, "name": "remind"}],
        "transitions": [
            {"from": "new", "event": 1, "to": f"{mark}-open"},
            {"from": f"{mark}-open", "event": 2, "to": f"{mark}-open"},
        ],
    }
    policy = {
        "for": {"definition": f"{mark}-case"},
        "params": [{"code": canary, "data": canary}],
        "rules": [{"state": f"{mark}-open", "params": [canary], "emit": [{"event": canary}]}],
    }
    return blueprint, policy


def do(ctx: Context, data: Any) -> Any:
    if data.get("fails"):
        raise DoNotRetry(f"{data['secret']} is down")
    return {"done": data.get("secret")}


def tell(ctx: Context, data: Any) -> Any:
    raise DoNotRetry(f"nobody listens to {data}")


class Cancelling:
    """Ends a request inside the server after as many milliseconds as it asks for, as a host with deadlines would."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wished = dict(scope.get("headers", ())).get(CANCEL)
        if wished is None:
            await self._app(scope, receive, send)
            return
        serving = asyncio.ensure_future(self._app(scope, receive, send))
        await asyncio.wait([serving], timeout=int(wished) / 1000)
        serving.cancel()
        await asyncio.wait([serving])


@dataclass
class World:
    url: str
    dsn: str
    app: Any
    engine: Engine
    companies: tuple[Company, Company]

    def other(self, company: Company) -> Company:
        return self.companies[1 - self.companies.index(company)]


@asynccontextmanager
async def two_companies(dsn: str) -> AsyncIterator[World]:
    async with Engine(dsn) as engine:
        session = await StandingSession.open(dsn)
        keyring = Keyring(session)
        settings = ServerSettings(
            rate=0, request_patience=0.5, stream_life=0.02, most_streams_each=1000, metrics="authenticated"
        )
        app = create_app(engine, settings, authenticate=Chain(api_keys=ApiKeyAuthenticator(keyring)))
        engine.register("do", do)
        engine.register_effect("tell", tell)
        companies = Company(NAMES[0]), Company(NAMES[1])
        try:
            async with engine.worker(), listening(Cancelling(app)) as url:
                for company in companies:
                    await _hire(company, keyring)
                    await _fill(company, engine.for_org(company.name))
                    await _spy(company, dsn)
                yield World(url, dsn, app, engine, companies)
        finally:
            await session.close()


async def _hire(company: Company, keyring: Keyring) -> None:
    roles = {"operator": ("operator", "publisher"), "clerk": (f"{company.mark}-clerk",), "guest": ()}
    capabilities = {"operator": ("*",), "clerk": (f"{company.mark}:review",), "guest": ()}
    for who, has in roles.items():
        issued = await keyring.create(
            company.name, f"{company.mark} {who}", f"{company.mark}-{who}", roles=has, capabilities=capabilities[who],
            scopes=SCOPES if who == "operator" else ("read", "start", "act", "consume"), by=company.canary,
        )  # fmt: skip
        company.keys[who] = issued.text


async def _fill(company: Company, engine: Engine) -> None:
    """Instances that rest, wait for a claim, died, were decided, failed to tell the world, and were cancelled."""
    mark, clerk = company.mark, f"{company.mark}-clerk"
    for name in ("orders", f"{mark}.orders"):
        await engine.publish(orders(company, name), by=clerk)
    for workflow in load_steps(REVIEW.format(mark=mark, canary=company.canary)).require_sound():
        await engine.publish(workflow, by=clerk)
    for n, key in enumerate([*BOTH, *company.names["start_key"], *company.names["key"]]):
        await _order(company, engine, n, key)
    for n in range(4):
        review = await engine.start(f"{mark}.review", {"secret": company.canary, "n": n}, by=clerk)
        await engine.settle(review.id, 30)
    await _run_machines(company, engine)
    await _fill_contracts(company, engine)
    await engine.drain(timeout=60)
    for begun in (await engine.list(flow="orders")).items:
        for by in (clerk, f"{mark}-guest"):
            await engine.activity(begun.id, mark, status="Done", by=by, data=company.canary)
        for n in range(2):
            engine.board.tell_error(
                "MONITOR_ERROR", company.canary, org=company.name, instance=UUID(begun.id).bytes, consumer=f"{mark}-{n}"
            )
    await engine.board.told()


async def _fill_contracts(company: Company, engine: Engine) -> None:
    """Tables and a contract of one's own, a patch in force, and a draft that tells the canary."""
    by = f"{company.mark}-operator"
    for name in company.names["table"]:
        table = DecisionTable(name).column("total", "money").row({"secret": company.canary}).build()
        await engine.publish_table(table, by=by, reason=company.canary)
    for type in company.names["contract"]:
        states = Contract(type).state("open").state("done", ends=True).gate("pass", "open", "done")
        contract = states.gate("back", "open", "open").slot("check", "open", "pass")
        await engine.publish_contract(contract.build(), by=by, reason=company.canary)
        steps = Fill().approval("ask", role=company.names["role"][0], about=company.canary)
        patch = Patch(type, envelope=1).slot("check", steps.edge("in", "ask").edge("ask", "out", on="approved")).build()
        await engine.save_patch_draft(patch, by=by)
        await engine.publish_patch(type, by=by)
        await engine.save_patch_draft(patch, by=by, reason=company.canary)


async def _run_machines(company: Company, engine: Engine) -> None:
    """Cases that were opened and reminded of, and two consumers, of which one has begun to answer."""
    names, operator = company.names, f"{company.mark}-operator"
    for environment in ("prod", *names["environment"]):
        blueprint, policy = case(company, environment)
        await engine.import_machine(Machine.load(blueprint, policy), by=operator)
    for n, consumer in enumerate(names["consumer"]):
        for environment in ("prod", *names["environment"]):
            owner = operator if n else f"{company.mark}-clerk"
            await engine.register_consumer(environment, consumer, definitions=names["machine"], owner=owner)
            await engine.receive(environment, consumer)
    for ref, request in zip(names["ref"], names["request"], strict=True):
        for event, id in (("open", request), ("remind", None)):
            await engine.trigger(
                "prod", names["machine"][0], ref, event, {"secret": company.canary}, request_id=id, by=operator
            )
    for event in await engine.receive("prod", names["consumer"][0]):
        wish = Postpone(delay=86_400, message=company.canary)
        await engine.settle_directly("prod", names["consumer"][0], event.ack, "retry", wish=wish)
    company.acks = [one.ack for one in (await engine.deliveries(consumer=("prod", names["consumer"][0]))).items]
    assert company.acks


async def _order(company: Company, engine: Engine, n: int, key: str) -> None:
    mark, secret, clerk = company.mark, company.canary, f"{company.mark}-clerk"
    flow = f"{mark}.orders" if key.startswith(mark) else "orders"
    begun = await engine.start(
        flow, {"secret": secret, "fails": n % 4 == 1}, key=key, business_key=f"{mark}-order-{n % 4}", by=clerk,
        attributes={"customer": f"{mark}-customer"}, caller=Caller(partition=f"{mark}-partition"),
    )  # fmt: skip
    await engine.settle(begun.id, 30)
    [task] = await engine.tasks(begun.id)
    if n % 4 == 0:
        await engine.claim(task.id, by=clerk)
        await engine.signal(begun.id, f"{mark}-unheard", {"secret": secret}, at=_LONG_AGO)
    elif n % 4 == 3:
        await engine.cancel(begun.id, by=clerk, reason=f"{secret} called")
    else:
        await engine.decide(task.id, by=clerk, decision="confirmed", comment=f"{secret} is fine", data={"s": secret})


def _connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True)


def tenant_tables(db: psycopg.Connection[Any]) -> list[str]:
    """Every table with an organisation, as the catalogue knows them; partitions belong to their tables."""
    found = db.execute(
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'org_id'"
        " where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"
        " order by 1"
    )
    return [name for (name,) in found]


# What serving requests changes by design, or what sums up everything that happens to a company.
_MOVING = {"api_keys": "last_used_at", "statistics": None, "statistics_deltas": None, "rate_limits": None}


def portrait(dsn: str, company: Company) -> dict[str, set[str]]:
    """All rows of a company, table by table."""
    found: dict[str, set[str]] = {}
    with _connect(dsn) as db:
        for table in tenant_tables(db):
            omitted = _MOVING.get(table, "")
            if omitted is not None:
                rows = db.execute(
                    sql.SQL("select (to_jsonb(t) - %s::text)::text from holdfast.{} t where org_id = %s").format(
                        sql.Identifier(table)
                    ),
                    (omitted, company.name),
                )
                found[table] = {text for (text,) in rows}
    return found


async def _spy(company: Company, dsn: str) -> None:
    """Every id of the company, by kind."""
    kinds = {"instance": "instances", "task": "tasks", "letter": "dead_letters", "effect": "effects", "step": "steps"}
    kinds |= {"activity": "activities"}
    with _connect(dsn) as db:
        for kind, table in kinds.items():
            rows = db.execute(
                sql.SQL("select id::text from holdfast.{} where org_id = %s").format(sql.Identifier(table)),
                (company.name,),
            )
            company.ids[kind] = sorted(id for (id,) in rows)
            assert company.ids[kind], f"{company.name} has no {kind}"
        shared = {str(id) for (id,) in db.execute("select id from holdfast.workers")}  # they serve everybody
    texts = (text for rows in portrait(dsn, company).values() for text in rows)
    company.every_id = frozenset(id for text in texts for id in UUIDS.findall(text)) - shared


def absent_like(id: str, noise: int) -> str:
    """An id that nobody has, in the same bucket and of the same age."""
    given = UUID(id).bytes
    return str(UUID(bytes=given[:9] + noise.to_bytes(6, "big") + given[15:]))
