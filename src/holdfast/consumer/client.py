"""Client of one consumer: poll a server for facts, call handlers, send their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2
import msgspec

from holdfast.consumer.answers import Answer, Postpone, Trigger, Verdict
from holdfast.consumer.events import Event
from holdfast.consumer.handlers import COMPLETE, HOOK, TRANSITION, F, FactHandler, Handlers
from holdfast.errors import DoNotRetry, HoldfastError
from holdfast.logs import logger

log = logger("holdfast.consumer")

PREFIX: Final = "/api/v1"
WAIT: Final = 20.0  # seconds a poll waits for facts
PATIENCE: Final = 15.0  # seconds for an answer of the server beyond that
RECEIVED_AFTER: Final = 10.0  # seconds of a handler after which the server is told that the fact was received
PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # between polls of a server that does not answer
TRIES: Final = 4  # for an answer: after that the fact comes again
_ANSWERS: Final = (Trigger, Verdict, Postpone, type(None))


class ConsumerError(HoldfastError):
    """The server refused a request of the consumer."""

    code = "CONSUMER_REFUSED"

    def __init__(self, message: str, *, status: int, code: str = "", hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint, status=status)
        self.status = status


class _Received(msgspec.Struct):
    ack: str
    attempt: int
    max_attempts: int
    body: msgspec.Raw


class _Page(msgspec.Struct):
    events: list[_Received] = []


class _Problem(msgspec.Struct):
    code: str = ""
    detail: str = ""
    title: str = ""
    hint: str = ""


class _Machine(msgspec.Struct):
    lifecycle: int = -1


_read_page = msgspec.json.Decoder(_Page).decode
_read_problem = msgspec.json.Decoder(_Problem).decode
_read_machine = msgspec.json.Decoder(_Machine).decode


class RemoteEvent(Event):
    """One fact for this consumer, on one attempt, with its server at hand."""

    def __init__(self, consumer: Consumer, received: _Received) -> None:
        super().__init__(
            bytes(received.body), received.ack, environment=consumer.environment, consumer=consumer.name,
            attempt=received.attempt, max_attempts=received.max_attempts,
        )  # fmt: skip
        self._server = consumer

    async def is_current(self) -> bool:
        """Check that the instance is still at the entry the fact is about."""
        return await self._server.read_lifecycle(self) == self.lifecycle


class Consumer:
    """One consumer of a server, which pulls its facts.

    `on`, `hook` and `complete` add handlers, `async` or plain; `run` polls until it is cancelled. Several processes may
    run the same consumer. For each fact the handler that names most is called; a fact without one is processed.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        name: str,
        *,
        env: str,
        in_flight: int = 64,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self.name = name
        self.environment = env
        self._in_flight = in_flight
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._http = http or httpx2.AsyncClient(
            base_url=url.rstrip("/"), headers=headers, timeout=httpx2.Timeout(WAIT + PATIENCE, connect=5.0)
        )
        self._handlers = Handlers(name)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop handlers that still run: their facts come again."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        await self._http.aclose()

    # --- handlers --------------------------------------------------------------------------------------------------

    def on(self, state: str | None = None, *, via: str | int | None = None) -> Callable[[F], F]:
        """Decorate the handler of transitions into a state, by an event's name or code; of all without either."""
        return lambda function: self._handlers.add(function, TRANSITION, state, via, None, transactional=False)

    def hook(self, code: str | None = None) -> Callable[[F], F]:
        """Decorate the handler of a hook; of all that have none without a code."""
        return lambda function: self._handlers.add(function, HOOK, None, None, code, transactional=False)

    def complete(self, state: str | None = None) -> Callable[[F], F]:
        """Decorate the handler of the completion of a state's gates: `event.send` names the event to send."""
        return lambda function: self._handlers.add(function, COMPLETE, state, None, None, transactional=False)

    # --- the server ------------------------------------------------------------------------------------------------

    async def register(self, **settings: Any) -> None:
        """Register the consumer with its settings, as docs/consumers.md names them."""
        about = {"environment": self.environment, "name": self.name, "way": "pull", **settings}
        await self._send("POST", f"{PREFIX}/consumers", about)

    async def receive(self, most: int = 50, wait: float = 0.0) -> list[RemoteEvent]:
        """Take due facts; without any, wait for them for so many seconds."""
        raw = await self._send("POST", self._path("receive"), {**self._environment, "most": most, "wait": wait})
        return [RemoteEvent(self, received) for received in _read_page(raw).events]

    async def ack(self, event: Event | str, outcome: str = "processed", **more: Any) -> None:
        """Answer a fact: delivered, processed, failed (`message`) or retry (`delay` or `at`).

        `processed` may bring `then`, the next event, and for a gate its `verdict`.
        """
        handle = event if isinstance(event, str) else event.ack
        await self._send("POST", self._path("acks"), {**self._environment, "ack": handle, "outcome": outcome, **more})

    async def beat(self) -> None:
        """Tell that the consumer is alive; every poll does, too."""
        await self._send("POST", self._path("beat"), self._environment)

    async def read_lifecycle(self, event: Event) -> int:
        """The number of the entry that the instance of an event is at."""
        place = f"{PREFIX}/machines/{quote(event.environment, safe='')}/{quote(event.definition, safe='')}/instance"
        return _read_machine(await self._send("GET", place, params={"external_ref": event.external_ref})).lifecycle

    @property
    def _environment(self) -> dict[str, Any]:
        return {"environment": self.environment}

    def _path(self, what: str) -> str:
        return f"{PREFIX}/consumers/{quote(self.name, safe='')}/{what}"

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None = None, params: dict[str, str] | None = None
    ) -> bytes:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        response = await self._http.request(method, path, content=content, headers=headers, params=params)
        if response.status_code >= 400:
            raise _refusal(response)
        return response.content

    # --- running ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Poll for facts and handle them until cancelled. A server that is away is asked again."""
        failures = 0
        while True:
            try:
                await self._poll()
                failures = 0
            except (httpx2.HTTPError, msgspec.MsgspecError, ConsumerError) as failure:
                if isinstance(failure, ConsumerError) and failure.status in (401, 403, 404, 422):
                    raise
                pause = PAUSES[min(failures, len(PAUSES) - 1)]
                failures += 1
                log.warning("The server could not be polled, again in %g s: %s", pause, failure)
                await asyncio.sleep(pause)

    async def _poll(self) -> None:
        while len(self._running) >= self._in_flight:
            self._room.clear()
            await self._room.wait()
        for event in await self.receive(self._in_flight - len(self._running), WAIT):
            if event.ack not in self._running:  # else its handler still runs
                task = asyncio.create_task(self.handle(event), name="holdfast-consumer")
                self._running[event.ack] = task
                task.add_done_callback(lambda _, ack=event.ack: self._ended(ack))

    def _ended(self, ack: str) -> None:
        self._running.pop(ack, None)
        self._room.set()

    async def handle(self, event: RemoteEvent) -> None:
        """Call the handler of an event and send its answer. One that raises gets the event again."""
        handler = self._handlers.find(event)
        received = asyncio.create_task(self._tell_received(event))
        try:
            answer = None if handler is None else await _call(handler, event)
            outcome, more = _told(answer)
        except DoNotRetry as refusal:
            outcome, more = "failed", {"message": str(refusal) or type(refusal).__name__}
        except Exception:
            log.exception("A handler of the consumer %s failed on %r", self.name, event)
            return
        finally:
            received.cancel()
        await self._answer(event, outcome, more)

    async def _tell_received(self, event: RemoteEvent) -> None:
        """Tell the server of a handler that takes its time."""
        await asyncio.sleep(RECEIVED_AFTER)
        try:
            await self.ack(event, "delivered")
        except (httpx2.HTTPError, ConsumerError) as failure:
            log.warning("The server could not be told that %r was received: %s", event, failure)

    async def _answer(self, event: RemoteEvent, outcome: str, more: dict[str, Any]) -> None:
        """Send an answer, again where it may not have arrived: the same one counts once."""
        for pause in PAUSES[:TRIES]:
            try:
                await self.ack(event, outcome, **more)
                return
            except ConsumerError as failure:
                if failure.status < 500:
                    log.error("The answer to %r was refused: %s", event, failure)
                    return
                log.warning("The answer to %r was not taken yet: %s", event, failure)
            except httpx2.HTTPError as failure:
                log.warning("The answer to %r did not arrive yet: %s", event, failure)
            await asyncio.sleep(pause)
        log.error("The answer to %r was given up: the event comes again", event)


async def _call(handler: FactHandler, event: RemoteEvent) -> Answer:
    arguments = (event, None) if handler.takes_context else (event,)
    try:
        if handler.is_async:
            answer = await handler.function(*arguments)
        else:
            answer = await asyncio.to_thread(handler.function, *arguments)
    except Postpone as wish:
        return wish
    if not isinstance(answer, _ANSWERS):
        raise TypeError(f"A handler answered {type(answer).__name__}; see holdfast.consumer.answers.")
    return answer


def _told(answer: Answer) -> tuple[str, dict[str, Any]]:
    """The outcome and the further fields of an answer, as the wire has them."""
    if isinstance(answer, Postpone):
        when = {"delay": answer.delay} if answer.at is None else {"at": answer.at}
        return "retry", {**when, "message": answer.message}
    if isinstance(answer, Verdict):
        more = {"verdict": answer.word, "message": answer.message}
        return "processed", more if answer.then is None else {**more, "then": answer.then}
    return "processed", {} if answer is None else {"then": answer}


def _refusal(response: httpx2.Response) -> ConsumerError:
    try:
        problem = _read_problem(response.content)
    except msgspec.MsgspecError:
        problem = _Problem()
    message = problem.detail or problem.title or f"The server answered {response.status_code}."
    return ConsumerError(message, status=response.status_code, code=problem.code, hint=problem.hint)
