"""Steps that call operations of a service: through the engine, over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from invoker_service import Listener, Reply, document, json_body, json_reply, parameter, running_listener
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from holdfast import Context, Engine, Flow, Retry
from holdfast.errors import DefinitionError, HoldfastError
from running import Evidence, until

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "steps"
CONFIRM = {
    "operationId": "confirm",
    "method": "post",
    "path": "/orders/{id}/confirm",
    "parameters": [parameter("id", "path", {"type": "string"})],
    "requestBody": json_body({"type": "object"}, required=False),
}
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "key"},
    "digest": {"type": "http", "scheme": "digest"},
}
CANARY = "canary:k4n/4r+y=="


async def run(engine: Engine, data: Any, handler: str = "openapi:shop.confirm", **options: Any) -> Any:
    await engine.publish(Flow("call").step("call", handler, **options).build())
    instance = await engine.start("call", data)
    await engine.drain(timeout=30)
    return await engine.get(instance.id)


async def the_step(engine: Engine, instance: Any) -> Any:
    [step] = [step for step in await engine.steps(instance.id) if step.name == "call"]
    return step


async def test_a_step_calls_the_operation_and_continues_with_its_answer(engine: Engine, listener: Listener) -> None:
    listener.answer(json_reply({"confirmed_at": "now"}))
    assert engine.openapi("shop", document(CONFIRM), base_url=f"{listener.url}/v1/") == ["openapi:shop.confirm"]
    instance = await run(engine, {"id": "ord-1", "notes": "fine"})
    assert instance.status == "completed"
    assert (await the_step(engine, instance)).output == {"confirmed_at": "now"}
    assert (listener.last.method, listener.last.target) == ("POST", "/v1/orders/ord-1/confirm")
    assert listener.last.json == {"notes": "fine"}


async def test_another_call_of_the_step_carries_the_same_idempotency_key(engine: Engine, listener: Listener) -> None:
    listener.answer(json_reply({}, 503), json_reply({}, 500), json_reply({"done": 1}))
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    instance = await run(engine, {"id": "ord-1"}, retry=Retry(attempts=3))
    assert (instance.status, (await the_step(engine, instance)).attempts) == ("completed", 3)
    assert len({arrived.headers["idempotency-key"] for arrived in listener.arrived}) == 1
    assert len(listener.arrived) == 3


async def test_a_refusal_of_the_service_is_final_and_says_what_was_asked(engine: Engine, listener: Listener) -> None:
    listener.answer(json_reply({"error": "There is no such order."}, 404))
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    instance = await run(engine, {"id": "ord-1"}, retry=Retry(attempts=5))
    assert (instance.status, instance.reason, len(listener.arrived)) == ("failed", "HTTP_404", 1)
    message = (await the_step(engine, instance)).error["message"]
    assert message == 'POST /orders/{id}/confirm answered 404: {"error": "There is no such order."}'


async def test_what_cannot_be_sent_is_not_sent(engine: Engine, listener: Listener) -> None:
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    instance = await run(engine, {"notes": "no id"}, retry=Retry(attempts=5))
    assert (instance.status, instance.reason, listener.arrived) == ("failed", "OPERATION_INPUT_INVALID", [])


@pytest.mark.parametrize("why", ["lost", "suspended"])
async def test_a_request_that_waited_for_its_secret_is_not_sent(
    engine: Engine, listener: Listener, evidence: Evidence, why: str
) -> None:
    """Its lease was lost, or its instance was suspended meanwhile: the call goes back, and is not counted."""
    asked, go = asyncio.Event(), asyncio.Event()

    async def token(_: str) -> str:
        asked.set()
        await go.wait()
        return CANARY

    engine.openapi("shop", document(CONFIRM), base_url=listener.url, headers={"x-key": token})
    await engine.publish(Flow("call").step("call", "openapi:shop.confirm").build())
    waiting = "select count(*) from holdfast.work where worker is null"
    async with engine.worker(lease=60) as worker:
        instance = await engine.start("call", {"id": "ord-1"})
        await asyncio.wait_for(asked.wait(), 30)
        if why == "lost":
            worker.lease.trusted_until = 0.0
        else:
            await engine.suspend(instance.id)
        go.set()
        await until(lambda: evidence.ask(waiting) == 1)
        assert listener.arrived == []
        if why == "lost":
            worker.lease.trusted_until = time.monotonic() + 60
            worker.wake()
        else:
            await engine.resume(instance.id)
        assert (await engine.wait(instance.id, timeout=30)).status == "completed"
    assert (len(listener.arrived), (await the_step(engine, instance)).attempts) == (1, 1)


async def test_a_service_that_is_slow_is_called_again(engine: Engine, listener: Listener) -> None:
    listener.answer(Reply(hangs=True), json_reply({}))
    engine.openapi("shop", document(CONFIRM), base_url=listener.url, timeout=0.2)
    assert (await run(engine, {"id": "ord-1"}, retry=Retry(attempts=2))).status == "completed"
    assert len(listener.arrived) == 2


async def test_a_service_that_asks_for_a_pause_gets_it_and_no_call_is_counted(
    engine: Engine, listener: Listener
) -> None:
    """The retry itself would come at once; the service said how long to wait."""
    listener.answer(json_reply({}, 429, retry_after="1"), json_reply({"done": 1}))
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    await engine.publish(Flow("call").step("call", "openapi:shop.confirm", retry=Retry(attempts=2)).build())
    loop = asyncio.get_running_loop()
    async with engine.worker():
        first = await engine.start("call", {"id": "ord-1"})
        await until(lambda: listener.arrived)
        refused_at = loop.time()
        second = await engine.start("call", {"id": "ord-2"})
        for instance in (first, second):
            assert (await engine.wait(instance.id, timeout=30)).status == "completed"
        assert loop.time() - refused_at > 0.9
        assert await until(lambda: len(listener.arrived) == 3)
    assert [(await the_step(engine, instance)).attempts for instance in (first, second)] == [2, 1]


async def test_one_tenants_pause_is_not_anothers(engine: Engine, listener: Listener) -> None:
    listener.answer(json_reply({}, 429, retry_after="600"), json_reply({"done": 1}))
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    other = engine.for_org("other")
    for tenant in (engine, other):
        await tenant.publish(Flow("call").step("call", "openapi:shop.confirm", retry=Retry(attempts=2)).build())
    async with engine.worker():
        await engine.start("call", {"id": "ord-1"})
        await until(lambda: listener.arrived)
        instance = await other.start("call", {"id": "ord-2"})
        assert (await other.wait(instance.id, timeout=30)).status == "completed"
    assert len(listener.arrived) == 2


async def test_the_trace_of_the_start_goes_on_to_the_service(engine: Engine, listener: Listener) -> None:
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1)))
    with trace.use_span(span):
        await run(engine, {"id": "ord-1"})
    assert listener.last.headers["traceparent"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"


# Credentials


def secured(*schemes: str, **more: Any) -> dict[str, Any]:
    return document(
        {**CONFIRM, "security": [{scheme: []} for scheme in schemes]},
        components={"securitySchemes": {name: SCHEMES[name] for name in schemes}},
        **more,
    )


@pytest.mark.parametrize("scheme", ["bearer", "basic", "header", "query", "cookie"])
async def test_each_scheme_puts_the_secret_in_its_place(
    engine: Engine, listener: Listener, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "canary-1234" if scheme == "cookie" else CANARY
    monkeypatch.setenv("SHOP_SECRET", secret)
    engine.openapi("shop", secured(scheme), base_url=listener.url, auth={scheme: "env:SHOP_SECRET"})
    assert (await run(engine, {"id": "ord-1"})).status == "completed"
    headers = listener.last.headers
    assert {
        "bearer": headers.get("authorization") == f"Bearer {CANARY}",
        "basic": headers.get("authorization") == "Basic " + base64.b64encode(CANARY.encode()).decode(),
        "header": headers.get("x-key") == CANARY,
        "query": listener.last.query == "key=canary%3Ak4n%2F4r%2By%3D%3D",
        "cookie": headers.get("cookie") == f"key={secret}",
    }[scheme]


async def test_the_first_alternative_that_can_be_met_is_used(engine: Engine, listener: Listener) -> None:
    async def of_tenant(org: str) -> str:
        return f"key-of-{org}"

    engine.openapi("shop", secured("bearer", "header"), base_url=listener.url, auth={"header": of_tenant})
    await run(engine, {"id": "ord-1"})
    assert listener.last.headers["x-key"] == f"key-of-{engine.org}"
    assert "authorization" not in listener.last.headers


async def test_an_operation_that_is_open_gets_no_secret(engine: Engine, listener: Listener) -> None:
    given = secured("bearer")
    given["paths"]["/open"] = {"get": {"operationId": "open", "security": [], "responses": {}}}
    engine.openapi("shop", given, base_url=listener.url, auth=lambda org: CANARY)
    await run(engine, {}, "openapi:shop.open")
    assert "authorization" not in listener.last.headers


async def test_a_document_without_schemes_gets_the_secret_as_a_bearer_token(engine: Engine, listener: Listener) -> None:
    engine.openapi("shop", document(CONFIRM), base_url=listener.url, auth=lambda org: CANARY)
    await run(engine, {"id": "ord-1"})
    assert listener.last.headers["authorization"] == f"Bearer {CANARY}"


async def test_headers_of_the_operator_may_be_secrets_too(
    engine: Engine, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", CANARY)
    headers = {"X-Key": "env:SHOP_SECRET", "X-Shop": "north"}
    engine.openapi("shop", document(CONFIRM), base_url=listener.url, headers=headers)
    await run(engine, {"id": "ord-1"})
    assert (listener.last.headers["x-key"], listener.last.headers["x-shop"]) == (CANARY, "north")


@pytest.mark.parametrize(
    ("auth", "complaint"),
    [
        ("s3cret", "not a reference"),
        ({"bearer": "s3cret"}, "not a reference"),
        ({"other": "env:X"}, "no scheme 'other'"),
        ({"digest": "env:X"}, "no scheme 'digest'"),
    ],
)
async def test_a_secret_is_named_never_written(engine: Engine, auth: Any, complaint: str) -> None:
    with pytest.raises(DefinitionError, match=complaint) as refused:
        engine.openapi("shop", secured("bearer", "digest"), base_url="http://127.0.0.1:1", auth=auth)
    assert refused.value.code == "OPENAPI_AUTH_INVALID"
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("headers", [{"Host": "x"}, {"X-A": "a\r\nb"}, {"X A": "a"}, {"Idempotency-Key": "1"}])
async def test_headers_that_cannot_be_set_are_refused(engine: Engine, headers: dict[str, str]) -> None:
    with pytest.raises(DefinitionError) as refused:
        engine.openapi("shop", document(CONFIRM), base_url="http://127.0.0.1:1", headers=headers)
    assert refused.value.code == "OPENAPI_AUTH_INVALID"


async def test_several_schemes_need_a_name(engine: Engine) -> None:
    with pytest.raises(DefinitionError, match=r"several schemes.*basic, bearer"):
        engine.openapi("shop", secured("bearer", "basic"), base_url="http://127.0.0.1:1", auth="env:X")


async def test_a_secret_that_breaks_the_line_is_not_sent(engine: Engine, listener: Listener) -> None:
    engine.openapi("shop", secured("bearer"), base_url=listener.url, auth=lambda org: "canary\r\nX-Admin: 1")
    instance = await run(engine, {"id": "ord-1"})
    assert (instance.reason, listener.arrived) == ("SECRET_UNUSABLE", [])
    assert "canary" not in str((await the_step(engine, instance)).error)


async def test_a_secret_that_is_not_there_is_looked_for_again(engine: Engine, listener: Listener) -> None:
    found: list[str | None] = [None, CANARY]
    engine.openapi("shop", secured("bearer"), base_url=listener.url, auth=lambda org: found.pop(0))
    assert (await run(engine, {"id": "ord-1"}, retry=Retry(attempts=2))).status == "completed"
    assert len(listener.arrived) == 1


@pytest.mark.parametrize("scheme", ["bearer", "basic", "header", "query"])
async def test_a_secret_is_nowhere_afterwards(
    engine: Engine, listener: Listener, evidence: Evidence, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even if the service tells everything it was told, in an answer, in a refusal, in a place to go to."""

    def echo() -> dict[str, Any]:
        encoded = base64.b64encode(CANARY.encode()).decode()
        password = CANARY.partition(":")[2] if scheme == "basic" else ""
        return {"said": f"{CANARY} {encoded} {password} canary%3Ak4n%2F4r%2By%3D%3D", CANARY: [CANARY]}

    engine.openapi("shop", secured(scheme), base_url=listener.url, auth={scheme: lambda org: CANARY})
    await engine.publish(Flow("call").step("call", "openapi:shop.confirm", retry=Retry(attempts=2)).build())
    told = json.dumps(echo()).encode()
    with caplog.at_level(logging.DEBUG):
        for replies in (
            [json_reply(echo())],
            [json_reply(echo(), 500), json_reply(echo(), 400)],
            [Reply(302, told, {"location": f"http://other.example/?{CANARY}"})],
            [Reply(200, b"{" + told, {"content-type": "application/json"})],
            [Reply(200, told[:-1] + b"," + told[1:], {"content-type": "application/json"})],
            [Reply(200, told, {"content-type": f"text/{CANARY}"})],
        ):
            listener.answer(*replies)
            await engine.start("call", {"id": "ord-1"})
            await engine.drain(timeout=30)
    rows = evidence.rows("select table_name from information_schema.tables where table_schema = 'holdfast'")
    stored = "".join(str(evidence.rows(f'select t::text from holdfast."{name}" t')) for (name,) in rows)
    assert "ord-1" in stored
    for spelling in ("k4n", "azRuLzRyK3k9PQ", base64.b64encode(CANARY.encode()).decode()):
        assert spelling not in stored
        assert spelling not in caplog.text


# Setting up


async def test_names_and_timeouts_are_checked(engine: Engine) -> None:
    with pytest.raises(HoldfastError, match="no name for a document"):
        engine.openapi("a.b", document(CONFIRM), base_url="http://127.0.0.1:1")
    with pytest.raises(DefinitionError, match="timeout"):
        engine.openapi("shop", document(CONFIRM), base_url="http://127.0.0.1:1", timeout=0)
    with pytest.raises(DefinitionError, match="where its service is"):
        engine.openapi("shop", document(CONFIRM))
    assert engine.handlers.names() == []


async def test_a_document_is_registered_once(engine: Engine) -> None:
    engine.openapi("shop", document(CONFIRM), base_url="http://127.0.0.1:1")
    with pytest.raises(HoldfastError, match="already registered"):
        engine.openapi("shop", document(CONFIRM), base_url="http://127.0.0.1:1")


async def test_the_connection_is_closed_with_the_engine_and_opened_again(holdfast_dsn: str, listener: Listener) -> None:
    engine = Engine(holdfast_dsn)
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    for _ in range(2):
        async with engine:
            assert (await run(engine, {"id": "ord-1"})).status == "completed"


async def test_cookies_of_a_service_do_not_come_back(engine: Engine, listener: Listener) -> None:
    listener.answer(json_reply({}, set_cookie="session=of-another-tenant; Path=/"))
    engine.openapi("shop", document(CONFIRM), base_url=listener.url)
    for _ in range(2):
        await run(engine, {"id": "ord-1"})
    assert ["cookie" in arrived.headers for arrived in listener.arrived] == [False, False]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of 127.0.0.1, signed by itself."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=shop", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    return tmp_path


async def test_certificates_of_ones_own(engine: Engine, certificate: Path) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with running_listener(serving) as listener:
        engine.openapi("shop", document(CONFIRM), base_url=listener.url, tls=trusting)
        engine.openapi("strict", document(CONFIRM), base_url=listener.url)
        assert (await run(engine, {"id": "ord-1"})).status == "completed"
        await engine.publish(Flow("strict").step("call", "openapi:strict.confirm").build())
        instance = await engine.start("strict", {"id": "ord-1"})
        await engine.drain(timeout=30)
        assert (await engine.get(instance.id)).reason == "OPERATION_UNREACHABLE"
        assert len(listener.arrived) == 1


async def test_the_service_of_the_example_confirms_an_order_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    service = __import__("service")
    monkeypatch.setitem(sys.modules, "service", service)

    @engine.handler("twice")
    async def twice(ctx: Context, data: Any) -> Any:
        confirm = engine.handlers.require("openapi:orders.confirmOrder").function
        await confirm(ctx, data)
        return await confirm(ctx, data)

    with service.running_service(token="t0ken") as orders:
        monkeypatch.setenv("ORDERS_TOKEN", "t0ken")
        engine.openapi("orders", service.DOCUMENT, base_url=orders.url, auth="env:ORDERS_TOKEN")
        instance = await run(engine, {"order_id": "ord-1", "approved_by": "bob"}, "twice")
        output = (await the_step(engine, instance)).output
        assert (output["status"], output["approved_by"], orders.orders.changes) == ("confirmed", "bob", 1)
