"""Transport: send requests to a server, and raise its refusals as the errors an engine would have raised."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import httpx2
import msgspec

from holdfast import errors
from holdfast.errors import DefinitionError, HoldfastError, InputInvalid, Refused, StoreError
from holdfast.logs import logger
from holdfast.loopback import is_loopback

PREFIX: Final = "/api/v1"
PAGE: Final = 200
_BY_STATUS: Final[dict[int, type[HoldfastError]]] = {
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
    422: errors.Refused,
    503: StoreError,
}
_BY_CODE: Final[dict[str, type[HoldfastError]]] = {errors.PayloadError.code: errors.PayloadError}

log = logger("holdfast.client")


class Misfit(msgspec.Struct, frozen=True):
    """One mistake, as the server lists it."""

    place: str = ""
    message: str = ""
    code: str | None = None
    hint: str | None = None
    severity: str = "error"
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None) or self.place
        hint = f" ({self.hint})" if self.hint else ""
        return f"{f'{where}: ' if where else ''}{f'{self.code} ' if self.code else ''}{self.message}{hint}"


class Transport:
    """A connection to one server.

    `headers` name the caller; a single request may add its own. `timeout` is the time for one answer in seconds, and
    for repeating a request that the server asks to send later.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        try:
            parsed = httpx2.URL(url)
        except httpx2.InvalidURL:
            parsed = httpx2.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise HoldfastError(
                f"{url!r} is no address of a server.", code="URL_INVALID", hint="Write http://127.0.0.1:8080."
            )
        self._url = url.rstrip("/")
        if "Authorization" in headers and parsed.scheme == "http" and not is_loopback(parsed.host):
            log.warning("The API key travels to %s without encryption: use https.", parsed.host)
        # A proxy cannot reach this very machine.
        is_near = is_loopback(parsed.host)
        self._timeout = timeout
        self._http = httpx2.Client(headers=_encoded(headers), timeout=timeout, trust_env=not is_near)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> Any:
        return self.send("GET", path, query=query, headers=headers)

    def text(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> str:
        """Read a text, as the server has written it."""
        answer = self._answer("GET", path, query, None, headers or {}, PREFIX)
        return answer.text

    def poll(self, path: str, body: Any, wait: float, headers: Mapping[str, str]) -> Any:
        """Send a request whose answer may take `wait` seconds longer than others."""
        return _document(self._answer("POST", path, {}, body, headers, PREFIX, wait))

    def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Any:
        return self.send("POST", path, body={} if body is None else body, headers=headers)

    def pages(
        self, path: str, most: int, *, after: str | None = None, headers: Mapping[str, str] | None = None, **query: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield up to `most` items of a list, page by page, from its beginning or from after an item."""
        cursor: str | None = None
        while most > 0:
            page = self.get(path, headers=headers, **query, after=after, cursor=cursor, limit=min(most, PAGE))
            yield from page["items"]
            most, cursor, after = most - len(page["items"]), page["next"], None
            if cursor is None:
                return

    def some(
        self, path: str, most: int, cursor: str | None, query: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Read up to `most` items of a list, fewer once a page is short, and the cursor of the rest."""
        found: list[dict[str, Any]] = []
        while True:
            asked = min(most - len(found), PAGE)
            page = self.get(path, **query, cursor=cursor, limit=asked)
            found += page["items"]
            cursor = page["next"]
            if cursor is None or len(page["items"]) < asked or len(found) >= most:
                return found, cursor
            query = {**query, "after": None}

    def events(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Iterator[tuple[str | None, bytes]]:
        """Yield id and data of server-sent events until the server ends the stream; a place alone has no data."""
        id, data = None, b""
        asked = {name: _values(value) for name, value in query.items() if value is not None}
        try:
            with self._http.stream(
                "GET", f"{self._url}{PREFIX}{path}", params=asked or None, headers=_encoded(headers)
            ) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    raise _refusal(answer)
                for line in answer.iter_lines():
                    name, _, value = line.partition(": ")
                    if name == "id":
                        id = value
                    elif name == "data":
                        data = value.encode()
                    elif not line and (id is not None or data):
                        yield id, data
                        id, data = None, b""
        except httpx2.TransportError as failure:
            raise _unreachable(self._url, failure) from None

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        prefix: str = PREFIX,
    ) -> Any:
        return _document(self._answer(method, path, query or {}, body, headers or {}, prefix))

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Any,
        headers: Mapping[str, str],
        prefix: str,
        wait: float = 0.0,
    ) -> httpx2.Response:
        said = dict(headers)
        content: bytes | None = None
        if body is not None:
            is_raw = isinstance(body, bytes)
            content = body if is_raw else msgspec.json.encode(body)
            said.setdefault("Content-Type", "application/json")
        asked = {name: _values(value) for name, value in query.items() if value is not None}
        answer = self._patiently(method, f"{self._url}{prefix}{path}", asked, content, _encoded(said), wait)
        if answer.status_code >= 300:
            raise _refusal(answer)
        return answer

    def _patiently(
        self,
        method: str,
        url: str,
        query: dict[str, list[str]],
        content: bytes | None,
        headers: dict[bytes, bytes],
        wait: float,
    ) -> httpx2.Response:
        """Send a request, and repeat it as long as the server answers 429 and its `Retry-After` fits the timeout."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                answer = self._http.request(
                    method, url, params=query or None, content=content, headers=headers, timeout=self._timeout + wait
                )
            except httpx2.LocalProtocolError:
                raise Refused(
                    "A name or key has a line break or another character that no request can carry.",
                    code="NAME_INVALID",
                    hint="Check --by, --key, --role and --api-key.",
                ) from None
            except httpx2.TransportError as failure:
                raise _unreachable(self._url, failure) from None
            pause = float(answer.headers.get("Retry-After") or 1)
            if answer.status_code != 429 or time.monotonic() + pause > deadline:
                return answer
            time.sleep(pause)


def _unreachable(url: str, failure: httpx2.TransportError) -> StoreError:
    return StoreError(
        f"The server {url} cannot be reached: {failure}.",
        code="SERVER_UNREACHABLE",
        hint="Check --url and whether it runs; `holdfast up` starts one here.",
    )


def _encoded(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Encode headers as UTF-8: they carry names of people, and the library alone takes only ASCII."""
    return {name.encode(): value.encode(errors="surrogateescape") for name, value in headers.items()}


def _values(value: Any) -> list[str]:
    if isinstance(value, (list, tuple)):
        return [str(each) for each in cast("Sequence[Any]", value)]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def _document(answer: httpx2.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content) if answer.content else None
    except msgspec.DecodeError:
        raise _stranger(answer) from None


def _stranger(answer: httpx2.Response) -> HoldfastError:
    return StoreError(
        f"What answers at {answer.url} is not Holdfast (status {answer.status_code}).",
        code="SERVER_STRANGE",
        hint="Check --url.",
    )


def _refusal(answer: httpx2.Response) -> HoldfastError:
    """Turn the problem document of the server into the error that was raised there."""
    told = _document(answer)
    if not isinstance(told, dict) or "code" not in told or "detail" not in told:
        return _stranger(answer)
    facts = cast("dict[str, Any]", told)
    code, message, hint = str(facts["code"]), str(facts["detail"]), str(facts.get("hint") or "")
    if code == "ROUTE_UNKNOWN":
        return _stranger(answer)
    found = tuple(msgspec.convert(each, Misfit) for each in facts.get("errors") or ())
    if any(each.line is not None or each.severity == "warning" or each.code for each in found):
        return DefinitionError(message, code=code, hint=hint, diagnostics=found)
    if found:
        return InputInvalid(message, code=code, hint=hint, misfits=found)
    if answer.status_code == 500:
        message = f"{message} Its request id is {facts.get('request_id')}."
    kind = _BY_CODE.get(code) or _BY_STATUS.get(answer.status_code, HoldfastError)
    return kind(message, code=code, hint=hint)
