"""The client of a consumer in a process of its own, against a real server, and its inbox."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psycopg
import pytest
from orders import BLUEPRINT, GATES, deliveries

from holdfast import Engine, Machine
from holdfast.consumer import Consumer, ConsumerError, DoNotRetry, Postpone, RemoteEvent, Trigger, Verdict, inbox
from holdfast.server.app import create_app
from holdfast.server.auth.api_keys import ApiKeyAuthenticator
from holdfast.server.auth.chain import Chain
from holdfast.server.auth.keyring import Keyring
from holdfast.server.http.listener import listening
from holdfast.store.pg.reconnecting import StandingSession
from running import until

pytestmark = pytest.mark.anyio


class Office:
    """A server of an engine without a worker, and the key of the service behind `billing`."""

    def __init__(self, app: Any, key: str) -> None:
        self.app = app
        self.key = key
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def open(self) -> Any:
        return listening(self.app, "127.0.0.1", self.port)

    async def note(self, request: httpx2.Request) -> None:
        if request.content:
            self.requests.append((request.url.path, json.loads(request.content)))

    def consumer(self) -> Consumer:
        url = f"http://127.0.0.1:{self.port}"
        http = httpx2.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {self.key}"}, event_hooks={"request": [self.note]},
            trust_env=False, timeout=30,
        )  # fmt: skip
        return Consumer(url, self.key, "billing", env="prod", http=http)


@pytest.fixture
async def closed(engine: Engine) -> AsyncIterator[Office]:
    session = await StandingSession.open(engine.dsn)
    try:
        keyring = Keyring(session)
        issued = await keyring.create(engine.org, "billing", "billing-service", scopes=("consume", "read"), by="ann")
        yield Office(create_app(engine, authenticate=Chain(api_keys=ApiKeyAuthenticator(keyring))), issued.text)
    finally:
        await session.close()


@pytest.fixture
async def wire(closed: Office) -> AsyncIterator[Office]:
    async with closed.open():
        yield closed


@pytest.fixture
async def billing(wire: Office) -> AsyncIterator[Consumer]:
    async with wire.consumer() as consumer:
        yield consumer


@asynccontextmanager
async def running(consumer: Consumer) -> AsyncIterator[None]:
    task = asyncio.create_task(consumer.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def office(engine: Engine, consumer: Consumer, policy: object = None) -> None:
    await engine.import_machine(Machine.load(BLUEPRINT, policy))  # type: ignore[arg-type]
    await consumer.register()
    assert await consumer.receive() == []


def statuses(engine: Engine) -> list[str]:
    return [d.status for d in deliveries(engine.dsn, "billing")]


async def test_handlers_get_events_and_their_answers_arrive(engine: Engine, billing: Consumer) -> None:
    await office(engine, billing)
    seen: list[tuple[int, bool]] = []

    @billing.on("Checked")
    async def checked(event: RemoteEvent) -> Trigger:
        seen.append((event.lifecycle, await event.is_current()))
        return Trigger("Pack", {"box": 4})

    @billing.on("Packed")
    def packed(event: RemoteEvent, ctx: None) -> None:
        seen.append((event.lifecycle, event.payload == {"box": 4}))

    await engine.trigger("prod", "order", "O-1", "Check")
    async with running(billing):
        await until(lambda: statuses(engine) == ["processed", "processed"])
    assert seen == [(1, True), (2, True)]


async def test_every_outcome_reaches_the_server(engine: Engine, billing: Consumer, wire: Office) -> None:
    await office(engine, billing, GATES)

    @billing.hook("CHECK.CREDIT")
    async def credit(event: RemoteEvent) -> Verdict:
        return Verdict.failure("no money")

    @billing.on("Checked")
    async def checked(event: RemoteEvent) -> None:
        raise Postpone(delay=3600)

    @billing.on("Packed")
    async def packed(event: RemoteEvent) -> None:
        raise DoNotRetry("no boxes")

    await engine.trigger("prod", "order", "O-1", "Check")
    async with running(billing):
        await until(lambda: "processed" in statuses(engine))
    said = {asked["outcome"]: asked for path, asked in wire.requests if path.endswith("/acks")}
    assert said["retry"]["delay"] == 3600
    assert said["processed"]["verdict"] == "failure"
    assert "pending" in statuses(engine)


async def test_a_server_that_is_away_is_asked_again(
    engine: Engine, closed: Office, caplog: pytest.LogCaptureFixture
) -> None:
    async with closed.consumer() as billing:
        async with closed.open():
            await office(engine, billing)
        billing.on()(lambda event: None)
        await engine.trigger("prod", "order", "O-1", "Check")
        with caplog.at_level(logging.WARNING, "holdfast.consumer"):
            async with running(billing):
                await until(lambda: "could not be polled" in caplog.text)
                async with closed.open():
                    await until(lambda: statuses(engine) == ["processed"])


async def test_a_refusal_ends_the_run(engine: Engine, billing: Consumer) -> None:
    with pytest.raises(ConsumerError) as refused:
        await billing.run()
    assert (refused.value.status, refused.value.code) == (404, "CONSUMER_UNKNOWN")


async def test_5_6_a_consumer_beats(engine: Engine, billing: Consumer) -> None:
    await office(engine, billing)
    before = (await engine.get_consumer("prod", "billing")).beat_at
    await billing.beat()
    assert (await engine.get_consumer("prod", "billing")).beat_at > before


def test_the_inbox_remembers_in_the_transaction_of_its_consumer(holdfast_dsn: str) -> None:
    with psycopg.connect(holdfast_dsn, autocommit=True) as connection:
        inbox.create(connection)
        inbox.create(connection)
        with connection.transaction(force_rollback=True):
            assert inbox.is_new(connection, "a")
            assert not inbox.is_new(connection, "a")
        assert inbox.is_new(connection, "a")
        assert not inbox.is_new(connection, "a")
        inbox.forget(connection, days=1)
        assert not inbox.is_new(connection, "a")


async def test_the_inbox_takes_an_asynchronous_connection(holdfast_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(holdfast_dsn) as connection:
        await inbox.create(connection)
        assert await inbox.is_new_async(connection, "a")
        assert not await inbox.is_new_async(connection, "a")


def test_the_client_brings_nothing_of_the_engine() -> None:
    program = (
        "import sys, holdfast.consumer\n"
        "names = ('holdfast.runtime', 'holdfast.store', 'holdfast.core', 'holdfast.graph', 'psycopg')\n"
        "assert not [m for m in sys.modules if m.startswith(names)], sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
