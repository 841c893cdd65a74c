"""What becomes of an answer, and of none: through the real client against a real service."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from invoker_service import Listener, Reply, document, json_reply

from holdfast.runtime.invokers.answers import LONGEST_WAIT, read_answer, retry_after
from holdfast.runtime.invokers.client import MOST_ANSWER, Client
from holdfast.runtime.invokers.documents import read_document
from holdfast.runtime.invokers.errors import CallFailed, CallRefused
from holdfast.runtime.invokers.requests import Request
from holdfast.runtime.invokers.servers import find_server

pytestmark = pytest.mark.anyio


async def call(listener: Listener, *replies: Reply, method: str = "GET", timeout: float = 10.0, **request: Any) -> Any:
    listener.answer(*replies)
    client = Client(find_server(listener.url, read_document(document())), timeout)
    sent = Request(method, "/things", [], request.get("headers", {}), [], request.get("content"))
    try:
        return read_answer(await client.send(sent, f"{method} /things"), f"{method} /things", lambda text: text)
    finally:
        await client.close()


async def test_json_text_and_nothing(listener: Listener) -> None:
    assert await call(listener, json_reply({"a": [1, None]})) == {"a": [1, None]}
    assert await call(listener, Reply(200, b'{"a":1}', {"content-type": "application/hal+json; charset=utf-8"})) == {
        "a": 1
    }
    assert (
        await call(listener, Reply(200, "grüß".encode("latin-1"), {"content-type": "text/plain; charset=latin-1"}))
        == "grüß"
    )
    assert await call(listener, Reply(204, b"")) is None
    assert await call(listener, Reply(200, b"", {"content-type": "application/json"})) is None


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"{", {"content-type": "application/json"}),
        Reply(200, b'{"a":1,"a":2}', {"content-type": "application/json"}),
        Reply(200, b'"\\u0000"', {"content-type": "application/json"}),
        Reply(200, b"[" * 1000, {"content-type": "application/json"}),
        Reply(200, b"\xff\xfe\x00", {"content-type": "image/png"}),
        Reply(200, b"x", {"content-type": "text/plain; charset=nonsense"}),
        Reply(200, b"\x1f\x8b", {"content-type": "application/json", "content-encoding": "gzip"}),
    ],
)
async def test_an_answer_that_cannot_be_used_is_final(listener: Listener, reply: Reply) -> None:
    with pytest.raises(CallRefused) as refused:
        await call(listener, reply)
    assert refused.value.code == "OPERATION_ANSWER_INVALID"


async def test_an_answer_has_a_limit(listener: Listener) -> None:
    whole = b'"' + b"x" * (MOST_ANSWER - 2) + b'"'
    assert len(await call(listener, Reply(200, whole, {"content-type": "application/json"}))) == MOST_ANSWER - 2
    with pytest.raises(CallRefused) as refused:
        await call(listener, Reply(200, whole + b" ", {"content-type": "application/json"}))
    assert refused.value.code == "OPERATION_ANSWER_TOO_LARGE"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504])
async def test_statuses_worth_another_call(listener: Listener, status: int) -> None:
    with pytest.raises(CallFailed, match=f"GET /things answered {status}") as failed:
        await call(listener, json_reply({"why": "busy"}, status, retry_after="7"))
    assert (failed.value.code, failed.value.retry_after) == (f"HTTP_{status}", 7.0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
async def test_statuses_that_are_final(listener: Listener, status: int) -> None:
    with pytest.raises(CallRefused, match=f'GET /things answered {status}: {{"why": "no"}}') as refused:
        await call(listener, json_reply({"why": "no"}, status))
    assert refused.value.code == f"HTTP_{status}"


async def test_a_message_is_short_and_one_line(listener: Listener) -> None:
    with pytest.raises(CallRefused) as refused:
        await call(listener, Reply(400, b"a\r\n\x1b[31m" + b"\xff\x00" * 1_000_000))
    assert len(str(refused.value)) < 600
    assert str(refused.value).isprintable()


def test_when_to_come_back() -> None:
    assert [retry_after(text) for text in ("5", "0", "", "soon", "-1", "1.5")] == [5.0, 0.0, None, None, None, None]
    assert retry_after("9" * 50) == LONGEST_WAIT
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert retry_after("Wed, 21 Oct 2150 07:28:00 GMT") == LONGEST_WAIT


async def test_a_service_that_does_not_answer(listener: Listener) -> None:
    with pytest.raises(CallFailed, match="not answered within") as late:
        await call(listener, Reply(hangs=True), timeout=0.1)
    assert late.value.code == "OPERATION_TIMEOUT"


async def test_an_answer_that_breaks_off(listener: Listener) -> None:
    with pytest.raises(CallFailed) as broken:
        await call(listener, Reply(200, b"{", breaks_off=True))
    assert broken.value.code == "OPERATION_ANSWER_BROKEN"


async def test_nobody_there() -> None:
    client = Client(find_server("http://127.0.0.1:1", read_document(document())), 5.0)
    with pytest.raises(CallFailed) as unreachable:
        await client.send(Request("GET", "/", [], {}, [], None), "GET /")
    await client.close()
    assert unreachable.value.code == "OPERATION_UNREACHABLE"


# Redirects


def redirect(status: int, location: str) -> Reply:
    return Reply(status, b"", {"location": location})


async def test_a_redirect_within_the_service_is_followed(listener: Listener) -> None:
    assert await call(listener, redirect(301, "/other"), json_reply(1)) == 1
    assert listener.last.target == "/other"
    assert await call(listener, redirect(307, "/put"), json_reply(2), method="POST", content=b"{}") == 2
    assert (listener.last.method, listener.last.body) == ("POST", b"{}")
    assert await call(listener, redirect(303, "/seen"), json_reply(3), method="POST", content=b"{}") == 3
    assert (listener.last.method, listener.last.body) == ("GET", b"")


@pytest.mark.parametrize(
    "location",
    [
        "http://localhost:9/",
        "//evil.example/x",
        "https://127.0.0.1/",
        "http://127.0.0.1:1/",
        "file:///etc/x",
    ],
)
async def test_a_redirect_to_another_server_is_not(listener: Listener, location: str) -> None:
    with pytest.raises(CallRefused) as refused:
        await call(listener, redirect(302, location), headers={"authorization": "Bearer canary"})
    assert refused.value.code == "OPERATION_REDIRECTED"
    assert len(listener.arrived) == 1


async def test_a_redirect_to_nowhere_is_a_broken_answer(listener: Listener) -> None:
    with pytest.raises(CallFailed) as broken:
        await call(listener, redirect(302, "http://[::"))
    assert broken.value.code == "OPERATION_ANSWER_BROKEN"


async def test_a_change_is_not_repeated_elsewhere_and_circles_end(listener: Listener) -> None:
    with pytest.raises(CallRefused, match="cannot be repeated"):
        await call(listener, redirect(302, "/other"), method="POST", content=b"{}")
    with pytest.raises(CallRefused, match="more than 3 times"):
        await call(listener, redirect(302, "/things"))
    assert len(listener.arrived) == 1 + 4


async def test_the_client_logs_nothing_of_our_requests(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await call(listener, json_reply({}), headers={"authorization": "Bearer canary-1234"})
    assert "canary-1234" not in caplog.text
