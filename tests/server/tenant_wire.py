"""One connection to a server, plain enough to be torn at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11
from tenant_recipes import Call


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def everything(self) -> str:
        return "\n".join([*self.headers.values(), self.text])


class Torn(Exception):
    """The connection ended before the answer did."""


class Wire:
    """One connection to the server; opened anew whenever it was torn."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._talk = h11.Connection(h11.CLIENT)

    async def ask(self, call: Call, headers: dict[str, str]) -> Answer:
        reader, writer = await self._connected()
        content = call.content
        sent = {"Host": "localhost", "Content-Length": str(len(content)), **headers, **call.headers}
        if call.body is not None:
            sent["Content-Type"] = call.media
        for event in (
            h11.Request(method=call.method, target=call.target, headers=list(sent.items())),
            h11.Data(content),
            h11.EndOfMessage(),
        ):
            writer.write(self._talk.send(event) or b"")
        try:
            answer = await self._read(reader)
        except (h11.RemoteProtocolError, OSError):
            self.tear()
            raise Torn from None
        except BaseException:
            self.tear()
            raise
        if self._talk.our_state is h11.DONE and self._talk.their_state is h11.DONE:
            self._talk.start_next_cycle()
        else:
            self.tear()
        return answer

    def tear(self) -> None:
        """No goodbye: the server finds out when it writes."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
            self._talk = h11.Connection(h11.CLIENT)
        return self._streams

    async def _read(self, reader: asyncio.StreamReader) -> Answer:
        status, headers, parts = 0, {}, []
        while True:
            event = self._talk.next_event()
            if event is h11.NEED_DATA:
                self._talk.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Response):
                status, headers = event.status_code, {n.decode(): v.decode("latin-1") for n, v in event.headers}
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return Answer(status, headers, b"".join(parts).decode())
            elif isinstance(event, h11.ConnectionClosed):
                raise Torn
