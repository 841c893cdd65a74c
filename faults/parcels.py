"""Parcels: a machine that its own consumers move, and three of these: one is down, one flaps, one is slow.

The harness sends the first event of a parcel. Each fact then brings the next event, in the commit of its answer, so a
fact that is lost stops a parcel, and an answer that counts twice moves it once too often: `Note` leads back to its own
state. Every consumer tells the witness what it was given before it does anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from faults.check import Verdict
from faults.sink import Sink, Teller
from faults.worker import Hands
from holdfast import ConsumerEvent, Engine, Machine, Trigger
from holdfast.consumer.events import Event
from holdfast.errors import Busy, StoreError

ENV: Final = "prod"
NAME: Final = "parcel"
DOWN, FLAPPING, SLOW = CONSUMERS = ("down", "flapping", "slow")
ATTEMPTS: Final = 1_000  # a killed process burns one, and no parcel may be suspended because processes were killed
IN_HAND: Final = 32  # facts that one process of a consumer has at a time
POLL: Final = 1.0
BLUEPRINT: Final[dict[str, Any]] = {
    "name": NAME,
    "environment": ENV,
    "version": 1,
    "states": [
        {"name": "New", "is_initial": True},
        {"name": "Begun"},
        {"name": "Checked"},
        {"name": "Shipped", "is_final": True},
    ],
    "events": [
        {"code": 1001, "name": "Begin"},
        {"code": 1002, "name": "Check"},
        {"code": 1003, "name": "Note"},
        {"code": 1004, "name": "Ship"},
    ],
    "transitions": [
        {"from": "New", "event": 1001, "to": "Begun"},
        {"from": "Begun", "event": 1002, "to": "Checked"},
        {"from": "Checked", "event": 1003, "to": "Checked"},
        {"from": "Checked", "event": 1004, "to": "Shipped"},
    ],
}
PATH: Final = {1: "Begin", 2: "Check", 3: "Note", 4: "Ship"}  # the events of a parcel by the number of the entry
MOVES: Final = {(SLOW, "Begin"): "Check", (FLAPPING, "Check"): "Note", (SLOW, "Note"): "Ship"}
HASTE: Final = {"HOLDFAST_ACK_PENDING_RESEND": "2", "HOLDFAST_ACK_DELIVERED_RESEND": "3"}


def machine() -> Machine:
    return Machine.load(BLUEPRINT)


# --- the consumers --------------------------------------------------------------------------------------------------


def entry(consumer: str, event: Event, body: bytes) -> dict[str, Any]:
    """What the witness is told of one fact on one attempt."""
    return {
        "consumer": consumer,
        "ref": event.external_ref,
        "lifecycle": event.lifecycle,
        "event": event.event,
        "guid": str(event.ack_guid),
        "ack": event.ack,
        "body": sha256(body).hexdigest(),
        "pid": os.getpid(),
    }


def slow(engine: Engine, hands: Hands) -> None:
    """Handlers in the process of a worker, which take their time."""
    consumer = engine.consumer(SLOW, env=ENV, max_attempts=ATTEMPTS, in_flight=IN_HAND)

    @consumer.on()
    async def take(event: ConsumerEvent) -> Trigger | None:
        await hands.teller.tell(entry(SLOW, event, event.raw))
        await asyncio.sleep(random.random() * hands.task.nap)
        brought = MOVES.get((SLOW, event.event))
        return None if brought is None else Trigger(brought)


async def flap(engine: Engine, hands: Hands) -> None:
    """A process that only pulls. Whatever it could not answer is sent again."""
    while True:
        try:
            events = await engine.receive(ENV, FLAPPING, most=IN_HAND, wait=POLL)
        except (StoreError, Busy):
            await asyncio.sleep(0.05)
            continue
        await asyncio.gather(*(_answer(engine, hands, event) for event in events))


async def _answer(engine: Engine, hands: Hands, event: ConsumerEvent) -> None:
    await hands.teller.tell(entry(FLAPPING, event, event.raw))
    await asyncio.sleep(random.random() * hands.task.nap / 4)
    brought = MOVES.get((FLAPPING, event.event))
    with contextlib.suppress(StoreError, Busy):
        await engine.ack(ENV, FLAPPING, event.ack, "processed", then=None if brought is None else (brought, None))


class Target:
    """What facts are pushed to, at an address that refuses everybody until it is opened."""

    def __init__(self, sink: Sink) -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._teller = Teller(sink.port)

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/facts"

    def close(self) -> None:
        self._socket.close()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        server = await asyncio.start_server(self._serve, sock=self._socket)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                await self._teller.tell(self._entry(body))
                answer = b'{"outcome": "processed"}'
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
                    + answer
                )
                await writer.drain()
        writer.close()

    def _entry(self, body: bytes) -> dict[str, Any]:
        data = json.loads(body)["data"]
        fact = json.dumps({name: data[name] for name in data if name not in ("ack", "consumer")}).encode()
        event = Event(fact, data["ack"], environment=ENV, consumer=DOWN, attempt=1, max_attempts=ATTEMPTS)
        return entry(DOWN, event, body)


# --- what the witness has -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """One fact as a consumer was given it once."""

    consumer: str
    ref: str
    lifecycle: int
    event: str
    guid: str
    ack: str
    body: str  # its hash
    pid: int
    t: float


class Account:
    """The entries of the witness, in the order in which it wrote them; `read` goes on where it ended."""

    def __init__(self, sink: Sink) -> None:
        self._path = sink.path
        self._read = 0
        self.told: list[Told] = []

    def read(self) -> list[Told]:
        if self._path.exists():
            with self._path.open("rb") as log:
                log.seek(self._read)
                whole, end, _ = log.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self.told += [Told(**json.loads(line)) for line in whole.splitlines()]
        return self.told


def judge(told: Iterable[Told], refs: Iterable[str], consumers: Iterable[str] = CONSUMERS) -> Verdict:
    """What each consumer was given, beside the way that every parcel has gone."""
    verdict = Verdict()
    first: dict[tuple[str, str, int], Told] = {}
    guids: dict[tuple[str, int], str] = {}
    latest: defaultdict[tuple[str, str], int] = defaultdict(int)
    verdict.counts["told"] = verdict.counts["repeated"] = 0
    for one in told:
        verdict.counts["told"] += 1
        what = f"{one.event} of {one.ref}, entry {one.lifecycle}, for {one.consumer}"
        if PATH.get(one.lifecycle) != one.event:
            verdict.blame("unasked", what)
        before = first.setdefault((one.consumer, one.ref, one.lifecycle), one)
        verdict.counts["repeated"] += before is not one
        if (before.guid, before.ack, before.body) != (one.guid, one.ack, one.body):
            verdict.blame("changed", f"{what} came again under another guid, or with other bytes")
        if guids.setdefault((one.ref, one.lifecycle), one.guid) != one.guid:
            verdict.blame("changed", f"{what} has another guid than for others")
        if one.lifecycle < latest[one.consumer, one.ref]:
            verdict.blame("order", f"{what} came after entry {latest[one.consumer, one.ref]}")
        if one.lifecycle > latest[one.consumer, one.ref] + 1:
            verdict.blame("order", f"{what} came right after entry {latest[one.consumer, one.ref]}")
        latest[one.consumer, one.ref] = one.lifecycle
    expected = {(consumer, ref, number) for consumer in consumers for ref in refs for number in PATH}
    verdict.counts["facts"] = len(expected)
    for consumer, ref, number in sorted(expected - first.keys()):
        verdict.blame("lost", f"{PATH[number]} of {ref} never reached {consumer}")
    for consumer, ref, number in sorted(first.keys() - expected):
        verdict.blame("unasked", f"entry {number} of {ref} for {consumer}")
    return verdict
