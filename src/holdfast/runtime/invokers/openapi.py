"""The `openapi` invoker: every operation of a document becomes a handler that makes the real HTTP call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from importlib import import_module
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from holdfast.errors import InputInvalid
from holdfast.runtime.invokers.answers import read_answer
from holdfast.runtime.invokers.auth import Auth, Revealed, Secret, read_credentials
from holdfast.runtime.invokers.documents import Source, read_document
from holdfast.runtime.invokers.errors import CallFailed, unfit
from holdfast.runtime.invokers.holds import PREFIX, Holds
from holdfast.runtime.invokers.operations import Operation, read_operations
from holdfast.runtime.invokers.requests import Request, build_request
from holdfast.runtime.invokers.servers import find_server
from holdfast.runtime.schemas.deadline import threads
from holdfast.runtime.schemas.schemas import is_quick
from holdfast.runtime.worker.context import Context, check_again

if TYPE_CHECKING:
    from holdfast.runtime.invokers.client import Client

TIMEOUT: Final = 30.0  # seconds for a whole call
Close = Callable[[], Awaitable[None]]


class Host(NamedTuple):
    """Interface of the engine that a service is registered with."""

    at_end: Callable[[Close], object]  # is told how to close the connections, once there are any
    current_trace: Callable[[], str | None]
    holds: Holds


class Service:
    """One document at one server."""

    def __init__(
        self,
        name: str,
        source: Source,
        base_url: str | None,
        auth: Auth | None,
        timeout: float,
        headers: Mapping[str, Secret] | None,
        tls: SSLContext | None,
        only: Collection[str] | None,
        host: Host,
    ) -> None:
        document = read_document(source)
        self.name = name
        self.server = find_server(base_url, document)
        self.credentials = read_credentials(document, auth, headers)
        self.operations = read_operations(document, only)
        self._timeout = timeout
        self._tls = tls
        self._host = host
        self._client: Client | None = None

    def handlers(self) -> dict[str, Invocation]:
        return {f"{PREFIX}{self.name}.{operation.id}": Invocation(self, operation) for operation in self.operations}

    async def call(self, operation: Operation, ctx: Context, data: Any) -> Any:
        request = await _request(operation, data)
        request.path = self.server.path + request.path
        revealed = Revealed(ctx.org)
        await self.credentials.apply(operation, request, revealed)
        request.headers["idempotency-key"] = ctx.idempotency_key
        trace_parent = self._host.current_trace() or ctx.trace
        if trace_parent is not None:
            request.headers["traceparent"] = trace_parent
        client = await self._opened()
        check_again(ctx)
        try:
            return read_answer(await client.send(request, operation.title), operation.title, revealed.hide)
        except CallFailed as failure:
            if failure.retry_after:
                self._host.holds.hold(ctx.org, self.name, failure.retry_after)
            raise

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _opened(self) -> Client:
        """The client takes a tenth of a second to load: in a thread, and only where an operation is called."""
        if self._client is not None:
            return self._client
        loaded = await asyncio.to_thread(import_module, "holdfast.runtime.invokers.client")
        if self._client is None:  # no other call was quicker
            self._client = cast("Client", loaded.Client(self.server, self._timeout, self._tls))
            self._host.at_end(self.close)
        return self._client


async def _request(operation: Operation, data: Any) -> Request:
    """Built here, unless a document's schemas and the data together may take long."""
    checks = [parameter.check for parameter in operation.parameters]
    checks += [] if operation.body is None else [operation.body.check]
    if all(is_quick(check, data) for check in checks):
        return build_request(operation, data)
    try:
        return await asyncio.get_running_loop().run_in_executor(threads(), build_request, operation, data)
    except InputInvalid as refusal:
        raise unfit(refusal.message) from None


class Invocation:
    """The handler of one operation."""

    def __init__(self, service: Service, operation: Operation) -> None:
        self._service = service
        self._operation = operation

    def __repr__(self) -> str:
        return f"<operation {self._service.name}.{self._operation.id}: {self._operation.title}>"

    async def __call__(self, ctx: Context, data: Any) -> Any:
        return await self._service.call(self._operation, ctx, data)
